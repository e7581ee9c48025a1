"""Engines that are installed here, and servers in processes of their own."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from urllib.request import urlopen

#: Seconds in which a server has to be ready.
READY = 300


@contextmanager
def served(command: str, pair: str, folder: str) -> Iterator[str]:
    """The address of the server that a command starts, which ends with the block.

    Raises RuntimeError if the server ends before it answers, or does not answer in time."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [*shlex.split(command.replace("PAIR", pair)), "--port", str(port)]
    words = [sys.executable, *(words[1:] if words[0] == "python" else ["-m", *words])]
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log, start_new_session=True)
        try:
            url = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + READY
            while not _answers(url):
                if server.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    said = log.read()[-2000:].decode(errors="replace")
                    raise RuntimeError(f"{command}: it does not answer\n{said}")
                time.sleep(0.1)
            yield url
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
            server.wait(30)


def _answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/v1/models", timeout=5):
            return True
    except OSError:
        return False


def installed(module: str) -> bool:
    return find_spec(module) is not None


def version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a checkout that is not installed
        return "of this checkout"
