"""Checkpoints that an engine's own program converts."""

import pytest

from specsim.engines._clients.running import convert


def test_a_program_that_fails_is_named_with_its_last_line():
    convert("this", (), "zen")
    with pytest.raises(ValueError, match=r"json.tool /nowhere: .*No such file"):
        convert("json.tool", ("/nowhere",), "zen")
    with pytest.raises(ImportError, match="run: pip install some-package"):
        convert("no_such_module", (), "some-package")
