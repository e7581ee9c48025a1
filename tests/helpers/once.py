"""What is costly to make is made once in a run of the tests, not once in each of pytest-xdist's processes."""

import fcntl
import os
import pickle


def once(tmp_path_factory, name, make):
    """What make(folder) returns, which must be picklable: called by the first process that asks for `name`.

    `folder` is new, and there until the run ends."""
    run = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        run = run.parent  # that of the process is in that of the run
    folder, made = run / f"once-{name}", run / f"once-{name}.pickle"
    with (run / f"once-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            folder.mkdir()
            made.write_bytes(pickle.dumps(make(folder)))
        return pickle.loads(made.read_bytes())
