"""What a head drafts that reads the hidden states of the target.

The hidden state of a token has the word that the target's state remembers after it. A head of multi-token
prediction is given the newest token, and the hidden state of the token before: that of the newest one is not
there until the target has read it. It drafts the most probable token of the target after that token and that
word. Each further draft of a step is given the draft before it, and the same word."""

import numpy as np

from specsim.core._types import Ints
from specsim.engines._planted.law import Law


def head_drafts(law: Law) -> Ints:
    """The tokens that a head drafts, [words, words + 1]: after each token, and each word that a hidden state
    remembers, or none."""
    contexts = np.indices(law.sizes).reshape(len(law.sizes), -1).T
    found: Ints = law.rows(contexts).argmax(axis=1).reshape(law.sizes)
    return found


def accepted_at(law: Law, text: Ints, gamma: int, stale: int = 0, late: int = 0) -> Ints:
    """How many of γ drafts at each place of a text [T] are the tokens that it has there, up to the first
    that is not, [T]; of a head whose hidden states are `stale` positions behind, and its tokens `late`."""
    assert law.memory is not None
    at = np.arange(len(text))
    places = at[:, None] + np.arange(gamma)
    words = law.memory.along(text)[np.maximum(at - 1 - stale, 0)]
    drafts = head_drafts(law)[text[np.clip(places - 1 - late, 0, len(text) - 1)], words[:, None]]
    same = (places < len(text)) & (drafts == text[np.minimum(places, len(text) - 1)])
    found: Ints = np.logical_and.accumulate(same, axis=1).sum(axis=1)
    return found
