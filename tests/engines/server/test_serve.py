"""`specsim serve`."""

import json
import re
import subprocess
import sys
import urllib.request

import pytest
from commands import run, says
from interrupting import interruptible

from specsim import mistakes
from specsim.engines._server.mistakes import mistake_names


def test_mistakes_are_listed():
    rows = json.loads(run("list", "mistakes", "--json").out)
    assert {*mistake_names()} == {row["mistake"] for row in rows if row["server"]}
    assert {*mistakes.names()} <= {row["mistake"] for row in rows}
    shown = says("\n", "list", "mistakes")
    assert all(row["mistake"] in shown for row in rows)


@pytest.mark.slow
def test_the_command_serves_until_interrupted():
    command = [sys.executable, "-m", "specsim", "serve", "--port", "0", "--plain"]
    with interruptible(command, stdout=subprocess.PIPE) as process:
        url = re.search(r"http://\S+?:\d+", process.stdout.readline())[0]
        with urllib.request.urlopen(f"{url}/health", timeout=10) as answer:
            assert answer.status == 200
        process.send_signal(2)
        assert process.wait(timeout=20) == 3
