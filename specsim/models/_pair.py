"""A target and its draft as one object, with the name from which they are made again."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from specsim.core._saving import encoded


@dataclass(frozen=True)
class Pair:
    """A target and its draft, which functions take in place of the two.

    Results keep the pair that they are about. Saved and pickled, a pair that has a name is that name; one
    without is its pmfs or tables, and other models are left out. Two pairs are equal if their contents are.

    Parameters
    ----------
    target, draft : array_like, Model, Trace or PromptLookup
        As for `specsim.simulate`; None where a file has left them out.
    name : str, optional
        What `specsim.read_pair` reads.
    sha256 : str, optional
        The first 16 digits of the SHA-256 of p and q; of results, where models can be pickled.

    Examples
    --------
    >>> target, draft = Pair([0.5, 0.5], [0.8, 0.2])
    >>> draft
    [0.8, 0.2]
    """

    target: Any = field(default=None, compare=False, repr=False)
    draft: Any = field(default=None, compare=False, repr=False)
    name: str | None = field(default=None, compare=False)
    sha256: str | None = None

    def __iter__(self) -> Iterator[Any]:
        return iter((self.target, self.draft))

    def to_dict(self) -> dict[str, Any]:
        """Name and digest, for JSON."""
        return {"name": self.name, "sha256": self.sha256}

    def saved(self) -> dict[str, Any]:
        """What a file holds of the pair."""
        if self.name is None:
            with suppress(TypeError):  # of models that no file can hold
                encoded([self.target, self.draft])
                return {**self.to_dict(), "target": self.target, "draft": self.draft}
        return self.to_dict()

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) if self.name is None else vars(self) | {"target": None, "draft": None}
