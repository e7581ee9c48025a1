"""The tree of commands: `specsim`, and the groups audit, trace, record and models."""

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
trace_app = App(name="trace", help="Record, import and analyse traces, logs of p and q.")
record_app = App(name="record", help="Log p and q of real models while they decode speculatively.")
models_app = App(name="models", help="Build n-gram models.")
audit_app = App(name="audit", help="Audit a verifier: verdict, evidence and power.")
app.command(audit_app)
app.command(trace_app)
app.command(record_app)
app.command(models_app)
