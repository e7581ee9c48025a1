"""The commands' tree: `specsim`, and the commands under audit, trace, record and models."""

from __future__ import annotations

from cyclopts import App


def _version() -> str:
    from specsim.core._provenance import specsim_version  # loads numpy, which --help can do without

    return specsim_version()


app = App(
    name="specsim",
    help="Prove, test and measure the verification core of speculative decoding.",
    version=_version,
    suppress_keyboard_interrupt=False,  # an interrupt exits with 3, in main
)
trace_app = App(name="trace", help="Logged p and q: record them, read them back.")
record_app = App(name="record", help="Log p and q of real models while they decode speculatively.")
models_app = App(name="models", help="The n-gram pair that stands for real text.")
audit_app = App(name="audit", help="Is a verifier exact? Verdict, evidence, and what would have been found.")
app.command(audit_app)
app.command(trace_app)
app.command(record_app)
app.command(models_app)
