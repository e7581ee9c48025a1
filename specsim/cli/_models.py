"""`specsim models build`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from specsim.cli._app import models_app


@models_app.command
def build(
    folder: Annotated[Path, Parameter(help="Folder of text, searched recursively.")],
    *,
    out: Annotated[Path, Parameter(help="File to write, .npz.")],
    pattern: Annotated[str, Parameter(help="Pattern of the files to read.")] = "*.py",
) -> None:
    """Train an n-gram pair (5-gram target, 2-gram draft) on a folder of text."""
    from specsim.models import build_pair

    target, draft = build_pair(folder, out, pattern=pattern)
    for name, value in target.provenance.items():
        print(f"{name:<24} {value}")
    print(
        f"wrote {out}: vocabulary {target.vocab_size}, {len(target.contexts):,} held-out contexts, draft "
        f"order {draft.order}"
    )
