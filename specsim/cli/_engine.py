"""`specsim audit engine`: audits of serving engines that hold a planted checkpoint."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from specsim.cli._app import VERDICT, audit_app, ending
from specsim.cli._options import REAL, Seed, whole
from specsim.cli._terminal import TEXT, Form, print_result, write_report
from specsim.core._files import read_text

Count = Parameter(converter=whole)


@audit_app.command(
    name="engine",
    help_epilogue=ending(
        "audit engine http://127.0.0.1:8000 --planted pair",
        "audit engine http://127.0.0.1:8000 --against http://127.0.0.1:8001 --prompts prompts.txt",
        codes=VERDICT,
    ),
)
def audit_engine(
    engine: Annotated[
        str,
        Parameter(
            help="hf, hf-lookup, hf-universal, hf-early-exit, hf-mtp, llama.cpp, mlx-lm, onnxruntime, "
            "onnxruntime-ngram, openvino, specsim, or the address of an OpenAI-compatible server, such as "
            "http://127.0.0.1:8000/v1; or texts.jsonl of an earlier audit, to judge it again."
        ),
    ],
    *,
    planted: Annotated[
        Path | None, Parameter(help="Folder of the planted checkpoint that the engine serves.")
    ] = None,
    tokens: Annotated[
        int | None,
        Count,
        Parameter(
            help="Emitted tokens to test; default: 100000, 20000 of each setting, 200000 with --against."
        ),
    ] = None,
    temperature: Annotated[float, REAL, Parameter(help="Temperature that is asked for.")] = 1.0,
    top_k: Annotated[int | None, Count, Parameter(help="Top-k that is asked for.")] = None,
    top_p: Annotated[float, REAL, Parameter(help="Top-p that is asked for.")] = 1.0,
    min_p: Annotated[float, REAL, Parameter(help="Min-p that is asked for.")] = 0.0,
    stop: Annotated[str | None, Parameter(help="A stop string: the text of one token.")] = None,
    texts: Annotated[int, Count, Parameter(help="Texts of each request (n).")] = 1,
    penalties: Annotated[
        bool,
        Parameter(negative="", help="Send penalties (repetition, presence, frequency) that change nothing."),
    ] = False,
    request_seeds: Annotated[bool, Parameter(help="Give each request a seed.")] = True,
    unequal_prompts: Annotated[
        bool, Parameter(negative="", help="Make every second prompt much longer than the others.")
    ] = False,
    logprobs: Annotated[
        int, Count, Parameter(help="Entries of the lists of log-probabilities; -1: ask for none.")
    ] = 0,
    speculative: Annotated[
        bool, Parameter(help="Decode with the draft; a server is taken as it runs.")
    ] = True,
    matrix: Annotated[
        bool, Parameter(negative="", help="Audit many settings, with speculation and without.")
    ] = False,
    without: Annotated[
        str | None, Parameter(help="With --matrix: the address of the same server without speculation.")
    ] = None,
    against: Annotated[
        str | None,
        Parameter(
            help="Compare with the server at this address, without a planted checkpoint; needs --prompts."
        ),
    ] = None,
    prompts: Annotated[
        Path | None, Parameter(help="With --against: a file with a prompt in each line.")
    ] = None,
    model: Annotated[str | None, Parameter(help="The model's name, where a server has several.")] = None,
    connections: Annotated[
        int | None, Count, Parameter(help="Connections to a server at once; default: 8.")
    ] = None,
    rule: Annotated[str | None, Parameter(help="Of the engine specsim: its verification rule.")] = None,
    gamma: Annotated[
        int | None,
        Count,
        Parameter(help="Drafted tokens per step; of a server, those that it was started with."),
    ] = None,
    mistake: Annotated[
        str | None, Parameter(help="Of the engine specsim: what it does wrong, see 'specsim serve'.")
    ] = None,
    tolerance: Annotated[
        float | None,
        REAL,
        Parameter(help="Largest error of log p of the engine's arithmetic; default: of float32."),
    ] = None,
    seconds: Annotated[float | None, REAL, Parameter(name="--time", help="Time limit in seconds.")] = None,
    seed: Seed = None,
    out: Annotated[
        Path | None,
        Parameter(
            help="Folder for engine.html, .json, .xml (JUnit) and all texts; a run that was interrupted goes "
            "on from it."
        ),
    ] = None,
    form: Form = TEXT,
) -> int:
    """Audit a serving engine: texts, log-probabilities and counters against the law of a planted checkpoint.

    Exit code 0 if consistent, 1 if biased or broken, 3 without a verdict (inconclusive or interrupted). With
    --against 0 if the two servers' texts have the same law, 1 if it is changed or one is broken, 3 without a
    verdict, or if texts at temperature 0 differ."""
    from specsim import engines as engines

    chosen = {"model": model, "connections": connections, "rule": rule, "gamma": gamma, "mistake": mistake}
    options: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    if tolerance is not None:
        options["tolerance"] = tolerance
    if out is not None:
        form.make_folder(out, "engine.json")  # before the work, in case it cannot be
    plain = engines.Sampling()
    sampling = engines.Sampling(
        temperature,
        top_k,
        top_p,
        min_p,
        () if stop is None else (stop,),
        None if logprobs < 0 else logprobs,
        penalties,
    )
    requested = {
        "temperature": temperature != plain.temperature,
        "top-k": top_k is not None,
        "top-p": top_p != plain.top_p,
        "min-p": min_p != plain.min_p,
        "stop": stop is not None,
        "texts": texts != 1,
        "penalties": penalties,
        "no-request-seeds": not request_seeds,
        "unequal-prompts": unequal_prompts,
        "logprobs": logprobs != plain.logprobs,
        "no-speculative": not speculative,
        "time": seconds is not None,
    }
    options["rng"] = seed
    if tokens is not None:
        options["tokens"] = tokens
    if against is not None:
        refuse(
            {
                "planted": planted is not None,
                "without": without is not None,
                "tolerance": tolerance is not None,
                "rule": rule is not None,
                "gamma": gamma is not None,
                "mistake": mistake is not None,
                "matrix": matrix,
                "no-speculative": not speculative,
                "unequal-prompts": unequal_prompts,
                "no-request-seeds": not request_seeds,
            },
            "is not an option of --against, which compares servers as they run",
        )
        options |= {"sampling": sampling, "texts": texts, "seconds": seconds, "out": out}
        found: Any = engines.compare_servers(engine, against, prompts_of(prompts), **options)
    elif prompts is not None:
        raise ValueError("--prompts belongs to --against; an audit draws its prompts from the checkpoint")
    elif planted is None:
        raise ValueError("--planted DIR is missing; 'specsim plant DIR' makes a checkpoint")
    elif engine.endswith(".jsonl"):
        asked = {
            name: value is not None for name, value in {"tokens": tokens, "seed": seed, **chosen}.items()
        }
        asked |= requested | {"matrix": matrix, "without": without is not None}
        refuse(asked, "cannot be chosen for texts that are there; they are judged as they were asked for")
        found = engines.judge_texts(engine, engines.open_planted(planted), tolerance=tolerance)
    elif matrix:
        refuse(requested, "is not an option of --matrix, which audits settings of its own, to the end")
        options |= {"without": without, "out": out}
        found = engines.audit_matrix(engine, engines.open_planted(planted), **options)
    elif without is not None:
        raise ValueError("--without belongs to --matrix; an audit alone asks one server")
    else:
        if not speculative:
            of_draft = {"rule": rule is not None, "gamma": gamma is not None}
            refuse(of_draft, "has no effect with --no-speculative, which decodes without a draft")
        if engine.endswith(".json"):
            raise ValueError(f"{engine}: no engine; an earlier audit is judged again from its texts.jsonl")
        found = engines.audit_engine(
            engine,
            engines.open_planted(planted),
            sampling=sampling,
            texts=texts,
            request_seeds=request_seeds,
            unequal_prompts=unequal_prompts,
            speculative=speculative,
            seconds=seconds,
            out=out,
            **options,
        )
    print_result(found, form)
    if out is not None:
        write_report(found, out, "engine")
        if form == TEXT:
            print(f"wrote engine.html, .json and .xml (JUnit) to {out}")
    code: int = found.exit_code
    return code


def refuse(given: Mapping[str, bool], why: str) -> None:
    """Raise ValueError for the first option that is given."""
    if names := [name for name, is_given in given.items() if is_given]:
        raise ValueError(f"--{names[0]} {why}")


def prompts_of(path: Path | None) -> list[str]:
    """The lines of a file that are not empty, for a comparison of two servers. Raises ValueError if there is
    none.
    """
    if path is None:
        raise ValueError("--against needs --prompts FILE, with a prompt in each line")
    lines = [line for line in read_text(path).splitlines() if line.strip()]
    if not lines:
        raise ValueError(f"{path}: no prompt; write one in each line")
    return lines
