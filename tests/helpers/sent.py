"""Jobs and models that tests send to workers, in a module that workers import quickly."""

import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from specsim.simulation._counting import Example, StepTally
from specsim.simulation._sources import make_source


class NotingJob:
    """Keeps the first token of every batch as an example, as an audit does with impossible ones."""

    def __call__(self):
        return make_source([0.5, 0.5], [0.25, 0.75], rule="standard", gamma=2), NotingTally(2, 2)


class NotingTally(StepTally):
    def count(self, counts, batch, key):
        super().count(counts, batch, key)
        return [Example(batch.first, 0, int(batch.tokens[0, 0]))]


class HeldJob(NotingJob):
    """A note in a folder of every chunk begun; all but the first two wait there for the file "released"."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self):
        return super().__call__()[0], HeldTally(2, 2, self.folder)


class HeldTally(StepTally):
    def __init__(self, depth, vocab_size, folder):
        super().__init__(depth, vocab_size)
        object.__setattr__(self, "folder", folder)

    def count(self, counts, batch, key):
        if batch.first % 2**19 == 0:
            (self.folder / f"{batch.first}.{os.getpid()}").write_text("begun")
            while batch.first > 2**19 and not self.folder.with_name("released").exists():
                time.sleep(0.01)
        super().count(counts, batch, key)


class Failing:
    """A model that fails in every process but its own."""

    vocab_size, order, contexts = 2, 0, np.zeros((1, 0), dtype=np.int32)

    def __init__(self):
        self.process = os.getpid()

    def rows(self, histories, out=None):
        if os.getpid() != self.process:
            raise ZeroDivisionError("in the model")
        return np.full((len(histories), 2), 0.5)

    def row(self, context):
        return np.full(2, 0.5)


class Sending(ThreadPoolExecutor):
    """Threads that are sent what processes would be: pickles."""

    def submit(self, *given):
        return super().submit(*pickle.loads(pickle.dumps(given)))
