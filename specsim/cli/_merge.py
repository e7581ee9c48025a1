"""`specsim merge`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import specsim
from specsim.cli._app import app
from specsim.cli._audit import report
from specsim.cli._options import Json
from specsim.cli._terminal import print_result


@app.command
def merge(
    files: Annotated[list[Path], Parameter(negative="", help="Files that --shard wrote, in any order.")],
    /,
    *,
    as_json: Json = False,
    out: Annotated[Path | None, Parameter(help="Folder for the report files of an audit.")] = None,
) -> int:
    """Merge the parts of a run, and print the result of simulate or audit."""
    found = specsim.merge(files)
    if isinstance(found, specsim.Audit):
        return report(found, out, as_json)
    print_result(found, as_json)
    return 0
