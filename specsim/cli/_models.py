"""`specsim models build`, `tokenizers`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from specsim.cli._app import app, ending, models_app
from specsim.cli._terminal import TEXT, Form, print_result


@models_app.command(help_epilogue=ending("models build texts --suffix .md --out pair.npz"))
def build(
    folder: Annotated[Path, Parameter(help="Folder of text, searched recursively.")],
    *,
    out: Annotated[Path, Parameter(help="File to write, .npz.")],
    pattern: Annotated[
        str | None, Parameter(help="Pattern of the names of the files to read. Default: *.py.")
    ] = None,
    suffix: Annotated[
        str | None, Parameter(help="Read the files with this ending, such as .txt, instead of --pattern.")
    ] = None,
) -> None:
    """Train an n-gram pair (5-gram target, 2-gram draft) on a folder of text."""
    from specsim.models import build_pair

    if suffix is not None:
        if pattern is not None:
            raise ValueError("--suffix and --pattern: give one of the two")
        pattern = f"*.{suffix.removeprefix('.')}"
    target, draft = build_pair(folder, out, pattern="*.py" if pattern is None else pattern)
    for name, value in target.provenance.items():
        print(f"{name:<24} {value}")
    print(
        f"wrote {out}: vocabulary {target.vocab_size}, {len(target.contexts):,} held-out contexts, draft "
        f"order {draft.order}"
    )


@app.command(
    help_epilogue=ending(
        "tokenizers models/large models/small",
        "tokenizers large/tokenizer.json small/tokenizer.json --json",
        codes="0 the tokens are the same, 1 they are not, 2 usage or bad input",
    )
)
def tokenizers(
    target: Annotated[Path, Parameter(help="Folder of the target, or its tokenizer.json.")],
    draft: Annotated[Path, Parameter(help="Folder of the draft, or its tokenizer.json.")],
    /,
    *,
    form: Form = TEXT,
) -> int:
    """Compare the tokens of two models: whether numbers mean the same, and where rows are padded."""
    from specsim.models import compare_vocabularies

    found = compare_vocabularies(target, draft)
    print_result(found, form)
    return found.exit_code
