"""What people reported of numbers, logs, plans and tokenizers in public threads: one command answers each rightly.

The table beside this file has the source of each case, its files, what the answer must have, and an answer that
would be wrong."""

import json

import numpy as np
import pytest
from cases import data
from commands import lacking, on_screen, run
from served import Served, log_lines, write_log

CASES = data(__file__)["cases"]


def write(path, content):
    """A file of a case: text, what JSON has, arrays, the tokens of GGUF, or how responses were served."""
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".npz":
        np.savez(path, **content)
    elif path.suffix == ".gguf":
        writer = pytest.importorskip("gguf").GGUFWriter(path, "llama")
        writer.add_token_list(content)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
    elif path.name == "served.jsonl" and "texts" in content:
        k, appended = content.pop("k", 12), content.pop("appended", False)
        lines = log_lines(Served(**content), "sglang", k)
        for line in lines if appended else ():
            own, lists = line["meta_info"]["output_token_logprobs"], line["meta_info"]["output_top_logprobs"]
            line["meta_info"]["output_top_logprobs"] = [
                [*one, token] for one, token in zip(lists, own, strict=True)
            ]
        write_log(path, lines)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['source']}: {case['command'][:40]}")
def test_a_public_case_is_answered(case, tmp_path):
    for name, content in case.get("files", {}).items():
        write(tmp_path / name, content)
    for command in case["command"].split(" && "):
        ran = run(*command.split(), cwd=tmp_path)
    assert (ran.code, lacking(case["says"], ran.out + ran.err)) == (case["code"], []), ran
    assert not command.startswith("check-metrics") or on_screen(ran.out) <= 25, ran.out


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['source']}: {case['command'][:40]}")
def test_a_wrong_answer_to_a_public_case_is_seen(case):
    code, text = case["wrong"]
    assert code != case["code"] or lacking(case["says"], text)
