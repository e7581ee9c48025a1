"""tpu-inference: vLLM's rejection sampler on TPUs, in JAX, on flattened drafts of many requests.

docs/engines/kernels.md has its signature, and known issues. The adapter samples the bonus tokens first."""

from typing import Any

import numpy as np

from specsim.adapters import _engines as engines
from specsim.adapters import _stubs as stubs
from specsim.adapters._contract import Verifier, declares

INSTALL = "pip install --no-deps tpu-inference, and jax"


def adapt(rejection_sample: engines.Function) -> Verifier:

    import jax

    compiled = jax.jit(rejection_sample, static_argnums=5)

    @declares(arrays="jax", dtypes=("float32",), lengths=True, one_hot=True)
    def verify(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator, *, lengths: Any = None) -> Any:
        steps, gamma = draft_tokens.shape
        counts = np.full(steps, gamma) if lengths is None else np.asarray(lengths)
        drafted = np.arange(gamma) < counts[:, None]
        more_steps, more_tokens = _to_a_power(steps + 1) - steps, _to_a_power(drafted.sum()) - drafted.sum()
        bonus_key, key = jax.random.split(jax.random.PRNGKey(int(rng.integers(2**32))))
        last_rows = np.asarray(p)[np.arange(steps), counts]

        def flat(rows: Any) -> Any:
            chosen = np.asarray(rows)[drafted]
            return np.concatenate([chosen, np.repeat(chosen[:1], more_tokens, axis=0)])

        with np.errstate(divide="ignore"):
            logits = np.pad(np.log(last_rows), ((0, more_steps), (0, 0)))
        output = np.asarray(
            compiled(
                flat(draft_tokens),
                np.concatenate([counts, np.zeros(more_steps - 1, counts.dtype), [more_tokens]]),
                None if q is None else flat(q),
                flat(np.asarray(p)[:, :-1]),
                jax.random.categorical(bonus_key, logits),
                True,
                key,
            )
        )
        tokens, bonus = np.full((steps, gamma + 1), -1), output[-steps - more_steps : -more_steps]
        tokens[:, :-1][drafted] = output[: drafted.sum()]
        whole = np.flatnonzero(bonus >= 0)
        tokens[whole, counts[whole]] = bonus[whole]
        return tokens

    return verify


def verifier() -> Verifier:
    """Adapt tpu-inference's own function. Raises EngineMissing if it is not installed."""
    folder = stubs.installed_folder("tpu_inference", INSTALL)
    engines.engine_function("jax:jit", INSTALL)
    return adapt(stubs.part(folder, "tpu_inference.layers.jax.sample.rejection_sampler").rejection_sample)


def _to_a_power(number: int) -> int:
    """The smallest power of two ≥ `number`: JAX compiles for each shape, and those are few."""
    return 1 << (int(number) - 1).bit_length() if number > 1 else 1
