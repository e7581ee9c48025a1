"""Logs of drafts for policies, written by hand."""

import numpy as np

from specsim.planning._policies._log import DraftLog, Features


def hand_made(accepted, confidence=0.5, entropy=1.0, top=0.5, tails=None):
    """A log whose drafts were accepted as told (1, 0, -1); features are numbers, or one for each position.

    `tails` are features (three numbers) of each token behind any rejected one."""
    n = len(accepted)
    outcomes = np.array(accepted, dtype=np.int8)

    def column(values):
        return np.broadcast_to(np.asarray(values, dtype=float), n).copy()

    behind = np.array([[0.5, 1.0, 0.5]] * 40 if tails is None else tails, dtype=float).reshape(-1, 3)
    return DraftLog(
        tokens=np.zeros(n, np.int32),
        drafted=np.zeros(n, np.int32),
        accepted=outcomes,
        features=Features(column(confidence), column(entropy), column(top)),
        beta=column(0.5),
        tail=np.where(outcomes == 0, 0, -1),
        tails=Features(*behind.T[:, None, :]),
    )
