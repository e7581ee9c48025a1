"""Engines work on tensors of a few numbers here: threads only get in each other's way."""

import pytest

pytest.importorskip("torch").set_num_threads(1)
