"""The tree of commands: `specsim`, and the groups audit, trace, record and models."""

from cyclopts import App


def _version() -> str:
    from specsim.core._provenance import specsim_version  # loads numpy, which --help can do without

    return specsim_version()


def ending(
    *examples: str, codes: str = "0 done, 2 usage or bad input, 3 interrupted", program: str = "specsim"
) -> str:
    """The end of a command's help: examples, and its exit codes."""
    lines = "\n".join(f"    {program} {example}" for example in examples)
    return f"Examples:\n\n{lines}\n\nExit codes: {codes}."


#: Of commands that give a verdict.
VERDICT = (
    "0 consistent, or lossy as declared; 1 biased or broken; 2 usage or bad input; 3 no verdict, "
    "inconclusive or interrupted"
)

#: Of groups of commands, some of which give a verdict.
ANY = (
    "0 done or consistent, 1 a verdict against what was tested, 2 usage or bad input, 3 interrupted or "
    "inconclusive"
)

app = App(
    name="specsim",
    help="Prove, test and measure the verification core of speculative decoding.",
    version=_version,
    suppress_keyboard_interrupt=False,  # an interrupt exits with 3, in main
    help_epilogue=ending(
        "audit mine:verify",
        "simulate zipf --overlap 0.8 --steps 10M",
        codes=ANY,
    ),
)
app.register_install_completion_command()
trace_app = App(
    name="trace",
    help="Record, import and analyse traces, logs of p and q.",
    help_epilogue=ending(
        "trace record ours --models ngram --steps 10k", "trace alpha ours", "trace audit ours", codes=ANY
    ),
)
record_app = App(
    name="record",
    help="Log p and q of real models while they decode speculatively.",
    help_epilogue=ending("record hf ours --target gpt2-xl --draft gpt2 --prompts prompts.txt"),
)
models_app = App(
    name="models",
    help="Build n-gram models.",
    help_epilogue=ending("models build texts --suffix .md --out pair.npz"),
)
audit_app = App(
    name="audit",
    help="Audit a verifier: verdict, evidence and power.",
    help_epilogue=ending(
        "audit standard --level quick --seed 1",
        "audit mine:verify --out report",
        "audit mine:new --against mine:old --json",
        codes=VERDICT,
    ),
)
app.command(audit_app)
app.command(trace_app)
app.command(record_app)
app.command(models_app)
