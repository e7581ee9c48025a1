"""Prompts in a file: a text in each line, or JSON Lines with an entry "prompt"."""

from pathlib import Path

from specsim.core._files import read_text
from specsim.core._json import parse_json


def read_prompts(path: Path) -> list[str]:
    """A prompt from each line that is not blank.

    Raises ValueError, naming the file, for what is not UTF-8 text, and the line, for a record without a
    prompt."""
    lines = read_text(path).splitlines()
    if path.suffix != ".jsonl":
        return [line for line in lines if line.strip()]
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = parse_json(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: not JSON ({error})") from None
        prompt = record.get("prompt") if isinstance(record, dict) else None
        if not isinstance(prompt, str):
            raise ValueError(f'{path}, line {number}: no object with a text named "prompt"')
        found.append(prompt)
    return found
