"""An engine under many settings: temperature, truncation, penalties, stop strings, several texts a request,
requests without seeds, prompts of unequal lengths."""

import shlex
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from specsim.core._checks import count_of
from specsim.core._progress import ShowProgress, shows_progress, told
from specsim.core._provenance import Provenance
from specsim.core._streams import RandomSource, root_of
from specsim.core._tables import NONE, Line, Piece, Table
from specsim.core._verdicts import Check, Finding, Judged, Verdict
from specsim.engines._audit.judge import Run, judge, likely_orders
from specsim.engines._audit.results import EngineAudit
from specsim.engines._audit.run import open_store, plain_options, planned_tokens, serve
from specsim.engines._audit.store import LONG, plan_requests
from specsim.engines._clients.opening import open_engine
from specsim.engines._planted.folder import Planted
from specsim.engines._planted.requests import Engine, Sampling

#: Texts per request in the cell that tests it.
SEVERAL = 3
#: Folders of the texts with speculation and without.
SIDES = "speculative", "plain"


@dataclass(frozen=True)
class Setting:
    """A row of the matrix: a name, and what is asked of the engine."""

    name: str
    sampling: Sampling
    n: int = 1
    request_seeds: bool = True
    unequal_prompts: bool = False

    @property
    def file(self) -> str:
        return f"{self.name.replace(',', '').replace(' ', '-')}.jsonl"

    def form(self) -> dict[str, Any]:
        """The options of `plan_requests`, without the sampling and the number of tokens."""
        return {"request_seeds": self.request_seeds, "unequal_prompts": self.unequal_prompts}

    def options(self) -> str:
        """The options of `specsim audit engine` that ask the same."""
        plain, own = Sampling(), self.sampling
        words = [
            f"--{name.replace('_', '-')} {getattr(own, name)}"
            for name in ("temperature", "top_k", "top_p", "min_p")
            if getattr(own, name) != getattr(plain, name)
        ]
        words += [f"--stop {shlex.quote(stop)}" for stop in own.stop]
        form = [f"texts={self.n}"] * (self.n > 1) + ["penalties"] * own.penalties
        form += ["unseeded"] * (not self.request_seeds) + ["unequal"] * self.unequal_prompts
        return " ".join(words + [f"--requests {','.join(form)}"] * bool(form))


def settings(planted: Planted) -> list[Setting]:
    words = planted.target.words
    k = max(2, words // 2)
    stop = (planted.decode([_rare_word(planted)]),)
    rows = {
        "plain": {},
        "temperature 0": {"temperature": 0.0},
        "temperature 0.5": {"temperature": 0.5},
        "temperature 1.5": {"temperature": 1.5},
        f"top-k {k}": {"top_k": k},
        "top-p 0.8": {"top_p": 0.8},
        "min-p 0.2": {"min_p": 0.2},
        f"temperature 0.7, top-k {k}": {"temperature": 0.7, "top_k": k},
        "temperature 1.5, top-p 0.8": {"temperature": 1.5, "top_p": 0.8},
        "temperature 1.5, min-p 0.2": {"temperature": 1.5, "min_p": 0.2},
        f"temperature 1.5, top-k {k}, top-p 0.8": {"temperature": 1.5, "top_k": k, "top_p": 0.8},
        "penalties off, but sent": {"penalties": True},
        "a stop string": {"stop": stop},
    }
    found = [Setting(name, Sampling(**changed)) for name, changed in rows.items()]  # type: ignore[arg-type]
    together = Sampling(1.5, k, 0.9, 0.05, stop, penalties=True)
    return [
        *found,
        Setting(f"{SEVERAL} texts a request", Sampling(), SEVERAL),
        Setting("no seeds", Sampling(), request_seeds=False),
        Setting("prompts of unequal lengths", Sampling(), unequal_prompts=True),
        Setting("all of these", together, SEVERAL, request_seeds=False, unequal_prompts=True),
    ]


def _rare_word(planted: Planted) -> int:
    """A word that ends about every other text of the audit."""
    law = planted.target
    prompts = planted.prompts(64, max(1, law.start) + 1, rng=0)
    contexts = np.concatenate([law.contexts(prompt, law.start) for prompt in prompts])
    share = law.rows(contexts)[:, : law.words].mean(axis=0)
    return int(np.abs(share - 1.0 / LONG).argmin())


@dataclass(frozen=True)
class MatrixCell:
    """One setting: the audit with speculation, the one without, and the command that repeats the first.

    `order` is the order of temperature and truncation that the former is tested against, one of those that
    the latter leaves possible."""

    setting: str
    speculative: EngineAudit
    plain: EngineAudit | None
    order: str
    command: str


@dataclass(frozen=True, eq=False)
class EngineMatrix(Judged):
    """The result of `audit_matrix`."""

    engine: str
    cells: tuple[MatrixCell, ...]
    tokens: int
    interrupted: bool = False

    derived = ("verdict", "exit_code", "provenance")

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all cells; those that an engine refuses have none."""
        worst = (Verdict.BROKEN, Verdict.BIASED, Verdict.INCONCLUSIVE)
        found = {audit.verdict for *_, audit in self._audits() if not audit.refused}
        none = Verdict.CONSISTENT if found else Verdict.INCONCLUSIVE
        return next((one for one in worst if one in found), none)

    def _audits(self) -> Iterator[tuple[MatrixCell, str, str, EngineAudit]]:
        """All audits: the cell, the name, the command, and the audit."""
        for cell in self.cells:
            yield cell, cell.setting, cell.command, cell.speculative
            if cell.plain is not None:
                name = f"{cell.setting}, without speculation"
                yield cell, name, f"{cell.command} --no-speculative", cell.plain

    @property
    def subject(self) -> str:
        return self.engine

    @property
    def provenance(self) -> Provenance | None:
        """That of the first audit, with the time of all."""
        runs = [audit.provenance for *_, audit in self._audits()]
        return replace(runs[0], seconds=sum(run.seconds for run in runs)) if runs else None

    @property
    def findings(self) -> list[Finding]:
        """Those of all audits, each with the setting."""
        return [
            Finding(one.kind, f"{name}: {one.text}")
            for _, name, _, audit in self._audits()
            for one in audit.findings
        ]

    def warnings(self) -> list[str]:
        return ["interrupted: the verdict so far"] if self.interrupted else []

    def evidence(self) -> Iterator[Piece]:
        yield Table(
            ("setting", "with speculation", "without", "detectable TV", "efficiency"),
            [
                (
                    cell.setting,
                    _mark(cell.speculative),
                    _mark(cell.plain) if cell.plain else NONE,
                    f"{cell.speculative.detectable_tv:.4f}" if cell.speculative.texts else NONE,
                    NONE if ratio is None else f"{ratio:.2f}",
                )
                for cell in self.cells
                for ratio in [cell.speculative.efficiency and cell.speculative.efficiency.ratio]
            ],
        )

    def finding_lines(self) -> list[str]:
        """Those of `remarks` say which command repeats them."""
        return []

    def remarks(self) -> Iterator[Piece]:
        for _, name, command, audit in self._audits():
            if audit.findings:
                yield Line(f"{name}: {audit.findings[0].text}", "red")
                nearest = next((one for one in audit.diagnosis if one.fits), None)
                if nearest:
                    yield f"Closest known mistake: {nearest.said}."
            elif audit.failures:
                yield f"{name}: {audit.notes[-1]}"
            if audit.findings or audit.failures:
                yield f"Again: {command}"
        if refused := sum(audit.refused for *_, audit in self._audits()):
            yield f"{refused} audits were refused; they test nothing."
        orders = sorted({cell.order for cell in self.cells if cell.order})
        if orders:
            yield f"Rows are processed in the order {' or '.join(orders)}."

    def checks(self) -> Iterator[Check]:
        """Each audit, and whether there is a verdict."""
        for _, name, command, audit in self._audits():
            if audit.findings:
                outcome = "error" if audit.verdict is Verdict.BROKEN else "failure"
                found = [f"{one.kind}: {name}: {one.text}" for one in audit.findings]
                text = "\n".join([*found, f"again: {command}"])
                yield Check(name, outcome, audit.findings[0].text, text)
            elif audit.refused or audit.verdict is Verdict.INCONCLUSIVE:
                yield Check(name, "skipped", _mark(audit))
            else:
                yield Check(name)
        yield self.decided()

    def records(self) -> list[dict[str, Any]]:
        """A row for each audit."""
        return [
            {
                "setting": cell.setting,
                "speculative": audit is cell.speculative,
                "verdict": str(audit.verdict),
                "refused": audit.refused,
                "tokens": audit.tokens,
                "detectable_tv": audit.detectable_tv,
                "findings": len(audit.findings),
                "order": cell.order,
                "command": cell.command,
            }
            for cell, *_, audit in self._audits()
        ]


def _mark(audit: EngineAudit) -> str:
    """The verdict, with the kinds of what was found."""
    if audit.refused:
        return "refused"
    kinds = ", ".join(dict.fromkeys(finding.kind for finding in audit.findings))
    return f"{audit.verdict} ({kinds})" if kinds else str(audit.verdict)


@shows_progress("audit", " tokens")
def audit_matrix(
    engine: str,
    planted: Planted,
    *,
    without: str | None = None,
    tokens: int | str = 20_000,
    tolerance: float | None = None,
    out: str | Path | None = None,
    rng: RandomSource = None,
    progress: ShowProgress = None,
    **options: Any,
) -> EngineMatrix:
    """Audit an engine under many settings, with speculation and without.

    Parameters
    ----------
    engine : str
        As in `audit_engine`.
    planted : Planted
        The checkpoints that the engine serves.
    without : str, optional
        The address of the same server without speculation. An engine in this process needs none: it is run
        both ways.
    tokens : int or str
        Emitted tokens of each audit, at least 1.
    out : path, optional
        Folder in which the texts are kept as they arrive, a file for each setting in `speculative` and in
        `plain`. With texts of the same run in it, the run continues from there.
    tolerance, rng, progress, **options
        As in `audit_engine`.

    Returns
    -------
    EngineMatrix
        The verdict of each setting, and the command that repeats it.

    Raises
    ------
    ValueError, TypeError, ImportError
        As `audit_engine`.

    Examples
    --------
    >>> import tempfile
    >>> from specsim import plant
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pair = plant(f"{folder}/pair", order=1, vocab_size=4, context=64, rng=1)
    ...     len(audit_matrix("specsim", pair, tokens=1, rng=1).cells)
    17
    """
    tokens = count_of("tokens", tokens)
    tell = told(progress)
    root = root_of(rng)
    cells: list[MatrixCell] = []
    interrupted = False
    with ExitStack() as stack:

        def opened(name: str, **changed: Any) -> Engine:
            return stack.enter_context(closing(open_engine(name, planted, **changed)))

        both = [opened(engine, **options)]
        if without is not None:
            both.append(opened(without, **options))
        elif "://" not in engine:
            both.append(opened(engine, speculative=False, **plain_options(options)))
        words = [f"{name}={options[name]}" for name in ("rule", "mistake") if name in options]
        asked_of = f"{engine}:{','.join(words)}" if words else engine
        rows = settings(planted)
        asked = [plan_requests(planted, root, row.sampling, tokens, row.n, **row.form()) for row in rows]
        # all of them before the first request, which changes what a server says of itself
        kept = []
        for row in rows:
            more = {"planted": planted.digest, "tokens": tokens, "texts": row.n, **row.form()}
            kept.append(
                [
                    open_store(out and Path(out) / side, row.file, one, root, row.sampling, more)
                    for side, one in zip(SIDES, both, strict=False)  # there may be none without speculation
                ]
            )
        done, planned = 0, len(both) * sum(map(planned_tokens, asked))

        def received(here: int, _: int) -> None:
            tell(done + here, planned)

        for row, requests, stores in zip(rows, asked, kept, strict=True):
            runs: list[Run] = []
            for one, store in zip(both, stores, strict=True):
                runs.append(serve(one, planted, requests, store, root, progress=received))
                done += planned_tokens(requests)
            command = f"specsim audit engine {asked_of} --planted {planted.folder} {row.options()}".strip()
            command += f" --tokens {tokens} --seed {root}"
            plain = judge(runs[1], tolerance=tolerance) if len(runs) > 1 else None
            orders = likely_orders(runs[1]) if len(runs) > 1 else []
            audit = judge(runs[0], orders=orders, tolerance=tolerance)
            cells.append(MatrixCell(row.name, audit, plain, audit.order, command))
            interrupted = any(run.interrupted for run in runs)
            if interrupted:
                break
    return EngineMatrix(engine, tuple(cells), tokens, interrupted)
