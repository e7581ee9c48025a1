"""The claimed law of a verifier's tokens: the target's law, or the one that a lossy rule declares."""

from dataclasses import dataclass, field

import numpy as np

from specsim.core._types import Floats, TokenArray
from specsim.models import Tree
from specsim.rules import Rule
from specsim.simulation._rows import PathRows, Rows


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


def rows_on_path(rows: Rows, tokens: TokenArray) -> PathRows:
    """The rows along the emitted tokens [depth+1, B] of trees; q is 1 without a draft."""
    found = PathRows.of(rows.p, rows.q)
    if rows.p.shape[1] == len(tokens):  # a chain: the path is the draft
        return found
    p_of, q_of = np.zeros_like(tokens), np.full_like(tokens, -1)
    every = np.arange(len(rows.p))
    alike = np.zeros((len(rows.p), rows.p.shape[1]), dtype=np.int64)  # depth + 1 of the nodes with the prefix
    alike[:, 0], node = 1, np.zeros(len(rows.p), dtype=np.int64)
    for depth, emitted in enumerate(tokens):
        below = np.take_along_axis(alike, rows.parents, axis=1) == depth + 1
        same = below & (rows.draft_tokens == emitted[:, None])
        # of the nodes with the prefix the first that has children has the rows
        last = np.where(below.any(axis=1), rows.parents[every, below.argmax(axis=1)], node)
        here = np.flatnonzero(emitted >= 0)
        p_of[depth, here] = found.p_of[last[here], here]
        here = here[last[here] < rows.q.shape[1]]
        q_of[depth, here] = found.q_of[last[here], here]
        alike[:, 1:][same] = depth + 2
        node = np.where(same.any(axis=1), same.argmax(axis=1) + 1, -1)
    return found._replace(more_q=np.ones((1, rows.vocab_size)), p_of=p_of, q_of=q_of)
