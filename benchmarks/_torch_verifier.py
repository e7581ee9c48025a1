"""The standard rule in PyTorch, for rows on a GPU: what an audit on a device is tried on."""

from typing import Any

import numpy as np

from specsim.adapters import declares


@declares(arrays="torch", device="cuda")
def verify(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> Any:
    """Verify chains of drafts where p and q are."""
    import torch

    def uniforms(*shape: int) -> Any:
        return torch.as_tensor(rng.random(shape), device=p.device)

    def of_drafts(rows: Any) -> Any:
        return rows[:, :gamma].gather(2, drafted[:, :, None])[..., 0]

    steps, gamma = draft_tokens.shape
    drafted = torch.as_tensor(draft_tokens, device=p.device)
    number = (uniforms(steps, gamma) * of_drafts(q) < of_drafts(p)).cumprod(1).sum(1)
    rows = torch.arange(steps, device=p.device)
    target, draft = p[rows, number], torch.nn.functional.pad(q[:, :gamma], (0, 0, 0, 1))[rows, number]
    residual = (target - draft).clamp(min=0)
    sums = torch.where(residual.sum(1, keepdim=True) > 0, residual, target).cumsum(1)
    last = torch.searchsorted(sums, uniforms(steps, 1) * sums[:, -1:], right=True)
    kept = torch.arange(gamma + 1, device=p.device) < number[:, None]
    return torch.where(kept, torch.nn.functional.pad(drafted, (0, 1)), -1).scatter(1, number[:, None], last)
