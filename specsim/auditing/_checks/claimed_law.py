"""The claimed law of a verifier's tokens: the target's law, or the one that a lossy rule declares."""

from dataclasses import dataclass, field

import numpy as np

from specsim.core._kernels import kernel
from specsim.core._types import Floats, TokenArray
from specsim.core.distributions import copy_row
from specsim.models import Tree
from specsim.rules import Rule
from specsim.simulation._rows import Rows


@dataclass(frozen=True)
class Claim:
    """The claim of `rule` for drafts shaped like `tree`; a verifier without a rule claims to be lossless."""

    rule: Rule | None
    tree: Tree
    known: dict[tuple[bytes, bytes, int], Floats] = field(default_factory=dict, repr=False)

    @property
    def lossless(self) -> bool:
        return self.rule is None or self.rule.declared is None

    def row(self, p: Floats, q: Floats | None, position: int) -> Floats:
        """The claimed law [V] of the token at `position`, from the rows there; q may be None at the bonus."""
        if self.rule is None or self.rule.declared is None:
            return p
        if position == self.tree.depth and not self.rule.leaf_rows:
            q = None
        key = (p.tobytes(), b"" if q is None else q.tobytes(), position)
        if key not in self.known:
            given = p.tolist(), None if q is None else q.tolist()
            row = self.rule.declared(*given, position, **self.rule.values)
            self.known[key] = np.clip(np.array([float(weight) for weight in row]), 0.0, None)
        return self.known[key]

    def rows(self, p: Floats, q: Floats) -> Floats:
        """The same for all positions [B, depth+1, V] of a batch; q may lack rows at the end."""
        if self.lossless:
            return p
        claimed = np.empty_like(p)
        for step, position in np.ndindex(p.shape[:2]):
            q_row = q[step, position] if position < q.shape[1] else None
            claimed[step, position] = self.row(p[step, position], q_row, position)
        return claimed


def rows_on_path(rows: Rows, tokens: TokenArray) -> tuple[Floats, Floats]:
    """The rows p and q [B, depth+1, V] along the emitted tokens [depth+1, B]; q is 1 without a draft."""
    if rows.p.shape[1] == len(tokens):  # a chain: the path is the draft
        return rows.p, rows.q
    shape = (len(rows.p), len(tokens), rows.p.shape[2])
    p, q = np.zeros(shape), np.ones(shape)
    follow_path(rows.parents, rows.draft_tokens, rows.p, rows.q, tokens, p, q)
    return p, q


@kernel
def follow_path(parents, draft_tokens, p, q, tokens, p_path, q_path):  # type: ignore[no-untyped-def]
    """Fill p_path, q_path[B, depth+1, V] with the rows of the first node that carries each emitted prefix."""
    size = draft_tokens.shape[1]
    alike = np.empty(size + 1, np.int64)  # depth + 1 of the nodes that carry the prefix
    for b in range(draft_tokens.shape[0]):
        alike[:] = 0
        alike[0] = 1
        node, last = 0, 0
        for depth in range(tokens.shape[0]):
            if tokens[depth, b] < 0:
                break
            following, inner = -1, -1
            for j in range(size):
                if alike[parents[b, j]] == depth + 1:
                    inner = parents[b, j] if inner < 0 else inner
                    if draft_tokens[b, j] == tokens[depth, b]:
                        alike[j + 1] = depth + 2
                        following = j + 1 if following < 0 else following
            last = inner if inner >= 0 else node
            copy_row(p[b, last], p_path[b, depth])
            if last < q.shape[1]:
                copy_row(q[b, last], q_path[b, depth])
            node = following
