"""An engine under many settings: the batteries of data/batteries.toml."""

import math
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from specsim.core._files import read_table
from specsim.core._progress import ShowProgress, shows_progress, told
from specsim.core._provenance import Provenance
from specsim.core._streams import RandomSource, root_of
from specsim.core._tables import NONE, Piece, Table
from specsim.core._types import check_choice, count_of
from specsim.core._verdicts import BUDGET, Check, Finding, Judged, Verdict
from specsim.engines._audit.judge import Run, judge, likely_orders
from specsim.engines._audit.known_mistakes import ALWAYS
from specsim.engines._audit.results import CLOSE, MEANINGS, EngineAudit
from specsim.engines._audit.run import FORM, open_store, opening, plain_options, planned_tokens, serve, tried
from specsim.engines._audit.store import LONG, plan_requests
from specsim.engines._planted.folder import Planted
from specsim.engines._planted.processing import possible_orders
from specsim.engines._planted.requests import PENALTIES, Engine, Sampling
from specsim.models._processed import SAMPLING
from specsim.simulation._counting import offset

#: The batteries, each with the settings of those before it, and their settings.
BATTERIES, SETTINGS = (read_table("batteries")[name] for name in ("batteries", "settings"))
#: The marks between the numbers of a parameter with several.
MARKS: dict[str, str] = read_table("servers")["marks"]
#: Those in which neighbours ask for something else.
MIXED = {name for some in SETTINGS.values() for name, given in some.items() if given.get("mixed_requests")}
#: Folders of the texts with speculation and without.
SIDES = "speculative", "plain"


@dataclass(frozen=True)
class Setting:
    """A row of the matrix: a name, what it finds, and what is asked of the engine."""

    name: str
    finds: str
    sampling: Sampling
    n: int
    longer: float  #: how many more tokens to ask for, since texts end early
    form: dict[str, bool]  #: the other options of `plan_requests`

    @property
    def file(self) -> str:
        return f"{self.name.replace(',', '').replace(' ', '-')}.jsonl"

    def options(self) -> str:
        """The options of `specsim audit engine` that ask the same."""
        own = self.sampling
        words = [f"--{x.replace('_', '-')} {getattr(own, x)}" for x in SAMPLING if x in own.acting]
        words += [f"--stop {shlex.quote(stop)}" for stop in own.stop]
        sent = {name: getattr(own, name) for name in (*PENALTIES, "penalty_last_n")}
        sent |= {"stop_id": own.stop_ids[0] if own.stop_ids else None, "min_tokens": own.min_tokens or None}
        sent |= own.rare | {name: _said(getattr(own, name), marks) or None for name, marks in MARKS.items()}
        sent |= {"texts": self.n if self.n > 1 else None, "logprobs": own.logprobs or None}
        form = [f"{name}={value}" for name, value in sent.items() if value is not None]
        form += [word for name, word in FORM.items() if self.form[name] is not (name == "request_seeds")]
        return " ".join(words + [f"--requests {','.join(form)}"] * bool(form))


def _said(value: Any, marks: str) -> str:
    return marks[0].join(_said(one, marks[1:]) for one in value) if marks else str(value)


def settings(planted: Planted, battery: str = "big") -> list[Setting]:
    law = planted.target
    prompts = planted.prompts(64, max(1, law.start) + 1, rng=0)
    contexts = np.concatenate([law.contexts(prompt, law.start) for prompt in prompts])
    shares = law.rows(contexts)[:, : law.words].mean(axis=0)
    rare = int(np.abs(shares - 1.0 / LONG).argmin())  # it ends about every other text of the audit
    words = {"half": max(2, law.words // 2), "rare": rare, "often": int(shares.argmax()), "end": law.words}
    found = []
    for size in [*BATTERIES][: [*BATTERIES].index(battery) + 1]:
        for name, given in SETTINGS[size].items():
            form = {key: given.get(key, key == "request_seeds") for key in FORM}
            values = {key: given[key] for key in given.keys() - {"finds", "texts", "more", *FORM}}
            if "stop" in values:
                values["stop"] = [planted.decode([rare])]
            sampling = Sampling.from_json(values, words)
            share = float(shares[sampling.stop_ids[0] if sampling.stop_ids else rare])
            length = sampling.min_tokens + (1.0 - (1.0 - share) ** (LONG - sampling.min_tokens)) / share
            longer = given.get("more", 1.0) * (LONG / length if sampling.stops else 1.0)
            if sampling.grammar:  # which ends texts where its own words are
                if (run := tried("specsim", planted, sampling)).interrupted:
                    raise KeyboardInterrupt
                longer = planned_tokens(run.requests) / sum(len(one.tokens) for one in run.texts)
            found.append(Setting(name, given["finds"], sampling, given.get("texts", 1), longer, form))
    return found


@dataclass(frozen=True)
class MatrixCell:
    """One setting: the audit with speculation, the one without, and the command that repeats the first;
    `order` is that of processing that the former is tested against, "" if the latter leaves only one."""

    setting: str
    speculative: EngineAudit
    plain: EngineAudit | None
    order: str
    command: str


@dataclass(frozen=True, eq=False)
class EngineMatrix(Judged):
    """The result of `audit_matrix`."""

    engine: str
    battery: str
    version: int  #: of the battery
    cells: tuple[MatrixCell, ...]
    tokens: int  #: of each setting and path
    interrupted: bool = False

    derived = ("verdict", "exit_code", "provenance")
    remedies = "engine"

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all cells; those that an engine refuses have none."""
        worst = (Verdict.BROKEN, Verdict.BIASED, Verdict.INCONCLUSIVE)
        found = {audit.verdict for *_, audit in self._audits() if not audit.refused}
        found |= {Verdict.BIASED for _ in self._seeds()}
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

    def size(self) -> str:
        sides = zip(*((cell.speculative, cell.plain) for cell in self.cells if cell.plain), strict=True)
        times = [sum(one.seconds for one in side) / max(1, sum(one.texts for one in side)) for side in sides]
        said = MEANINGS["battery"].format(found=self, settings=len(self.cells), budget=BUDGET)
        if times and min(times) > 0.0:
            said += MEANINGS["times"].format(*times, times[1] / times[0])
        return said

    @property
    def findings(self) -> list[Finding]:
        """Those of all audits, each with the setting."""
        found = ((name, one) for _, name, _, audit in self._audits() for one in audit.findings)
        return [*(Finding(one.kind, f"{name}: {one.text}") for name, one in found), *self._seeds()]

    def _seeds(self) -> Iterator[Finding]:
        """Settings in which a seed gives the same text again without speculation, but not with it."""
        for cell in self.cells:
            same, count = cell.speculative.repeated
            if cell.plain and same < count and cell.plain.repeated == (count, count):
                yield Finding("dependence", MEANINGS["seeds"].format(cell.setting, same, count))

    def warnings(self) -> list[str]:
        return ["interrupted: the verdict so far"] if self.interrupted else []

    def evidence(self) -> Iterator[Piece]:
        rows = []
        for cell in self.cells:
            audit, gained = cell.speculative, cell.speculative.efficiency
            tv = f"{audit.detectable_tv:.4f}" if audit.texts else NONE
            ratio = NONE if gained is None or gained.ratio is None else f"{gained.ratio:.2f}"
            rows.append((cell.setting, _mark(audit), _mark(cell.plain) if cell.plain else NONE, tv, ratio))
        titles = "setting", "with speculation", "without", "detectable TV", "efficiency"
        yield Table(titles, rows, bold=[i for i, cell in enumerate(self.cells) if cell.speculative.findings])

    def finding_lines(self) -> list[str]:
        """The first finding of each audit, and those of seeds."""
        found = [(name, audit.findings) for _, name, _, audit in self._audits() if audit.findings]
        return [*(f"{name}: {some[0].text}" for name, some in found), *(one.text for one in self._seeds())]

    def remarks(self) -> Iterator[Piece]:
        # a neighbour's parameters look like a part that is left out
        known = [(cell, audit) for cell, *_, audit in self._audits() if audit.diagnosis]
        near = [audit.diagnosis[0] for cell, audit in known if cell.setting not in MIXED]
        if known and not near:
            yield MEANINGS["mixed"]
        # which token is read instead of one of the text's is not known, and need not be one that is tried
        fit, unread = sum(one.fits for one in near), sum(one.name == "wrong_token_in_cache" for one in near)
        if unread and 2 * unread >= len(near):
            yield MEANINGS["unread"].format(unread, len(near))
        elif 2 * fit < len(near):
            yield MEANINGS["few fit"].format(fit, len(near))
        for cell, name, command, audit in self._audits():
            close = [one for one in audit.diagnosis if one.behind < CLOSE and cell.setting not in MIXED]
            own, another = SIDES if audit is cell.speculative else SIDES[::-1]
            called = close[0].name.partition(":")[0] if close and 2 * fit >= len(near) else ""
            # what both paths show has one name; what shows whatever is asked for shows in the first setting
            also = [one for one in (getattr(cell, another),) if one and one.diagnosis]
            also += [getattr(self.cells[0], own)] * (called in ALWAYS)
            if called and close[0].fits and all(called in _fitting(one) for one in also):
                others = "".join(f", or {one.name}" for one in close[1:])
                yield f"{name}: closest known mistake: {close[0].said}{others}."
            yield from (f"{name}: {line}" for line in audit.warnings() if not audit.findings)
            if audit.findings or audit.failures:
                yield f"{name}, again: {command}"
        if refused := sum(audit.refused for *_, audit in self._audits()):
            yield f"{refused} audits were refused; they test nothing."
        for order in sorted({cell.order for cell in self.cells if cell.order}):
            where = ", ".join(cell.setting for cell in self.cells if cell.order == order)
            yield f"Rows are processed in the order {order}: {where}."

    def outcomes(self) -> Iterator[Check]:
        for _, name, command, audit in self._audits():
            if audit.findings:
                outcome = "error" if audit.verdict is Verdict.BROKEN else "failure"
                found = [f"{one.kind}: {name}: {one.text}" for one in audit.findings]
                yield Check(name, outcome, audit.findings[0].text, "\n".join([*found, f"again: {command}"]))
            elif audit.refused or audit.verdict is Verdict.INCONCLUSIVE:
                yield Check(name, "skipped", _mark(audit))
            else:
                yield Check(name)
        yield from (Check("seeds", "failure", one.text, str(one)) for one in self._seeds())
        yield self.decided()

    def records(self) -> list[dict[str, Any]]:
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


def _fitting(audit: EngineAudit | None) -> set[str]:
    """The known mistakes among the nearest that fit, without their parameters."""
    return {one.name.partition(":")[0] for one in (audit.diagnosis if audit else ()) if one.fits}


def _mark(audit: EngineAudit) -> str:
    """The verdict, with the kinds of what was found."""
    if audit.refused:
        return "refused"
    kinds = ", ".join(dict.fromkeys(finding.kind for finding in audit.findings))
    return f"{audit.verdict} ({kinds})" if kinds else str(audit.verdict)


@shows_progress("audit", " tokens")
def audit_matrix(
    engine: str | Engine,
    planted: Planted,
    *,
    without: str | Engine | None = None,
    battery: str = "mid",
    tokens: int | str | None = None,
    tolerance: float | None = None,
    out: str | Path | None = None,
    rng: RandomSource = None,
    progress: ShowProgress = None,
    **options: Any,
) -> EngineMatrix:
    """Audit an engine under the many settings of a battery, with speculation and without.

    Parameters
    ----------
    engine : str or Engine
        As in `audit_engine`.
    planted : Planted
        The checkpoints that the engine serves.
    without : str or Engine, optional
        The address of the same server without speculation, or such an engine. One that specsim opens in this
        process needs none: it is run both ways.
    battery : {"small", "mid", "big"}
        The settings: for an engine that makes 2,000 tokens a second, those of a minute, of ten minutes, and
        of two hours. The probability of a false alarm is at most 1e-6 in all of them together.
    tokens : int or str, optional
        Emitted tokens of each audit, at least 1, in place of the battery's.
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
    ...     len(audit_matrix("specsim", pair, battery="small", tokens=1, rng=1).cells)
    13
    """
    check_choice("battery", battery, [*BATTERIES])
    about = BATTERIES[battery]
    tokens = count_of("tokens", about["tokens"] if tokens is None else tokens)
    rows = settings(planted, battery)
    tell = told(progress)
    root = root_of(rng)
    cells: list[MatrixCell] = []
    interrupted = False
    with ExitStack() as stack:
        both = [stack.enter_context(opening(engine, planted, options))]
        if without is not None:
            both.append(stack.enter_context(opening(without, planted, options)))
        elif isinstance(engine, str) and "://" not in engine:
            both.append(stack.enter_context(opening(engine, planted, plain_options(options), False)))
        name = engine if isinstance(engine, str) else engine.name
        words = [f"{name}={options[name]}" for name in ("rule", "mistake") if name in options]
        asked_of = f"{name}:{','.join(words)}" if words else name
        how = {"budget": BUDGET / (len(both) * len(rows)), "wanted_tv": about["detectable_tv"]}
        work = []
        for row in rows:  # all files before the first request, which changes what a server says of itself
            count = math.ceil(tokens * row.longer)
            asked = plan_requests(planted, root, row.sampling, count, row.n, **row.form)
            more = {"planted": planted.digest, "tokens": count, "texts": row.n, **row.form}
            stores = [
                open_store(out and Path(out) / side, row.file, one, root, row.sampling, more)
                for side, one in zip(SIDES, both, strict=False)  # there may be none without speculation
            ]
            work.append((row, count, asked, stores))
        done, planned = 0, len(both) * sum(planned_tokens(asked) for _, _, asked, _ in work)

        for row, count, requests, stores in work:
            runs: list[Run] = []
            for one, store in zip(both, stores, strict=True):
                runs.append(serve(one, planted, requests, store, root, progress=offset(tell, done, planned)))
                done += planned_tokens(requests)
            command = f"specsim audit engine {asked_of} --planted {planted.folder} {row.options()}".strip()
            command += f" --tokens {count} --seed {root}"
            plain = judge(runs[1], tolerance=tolerance, **how) if len(runs) > 1 else None
            orders = likely_orders(runs[1], tolerance) if len(runs) > 1 else []
            audit = judge(runs[0], orders=orders, tolerance=tolerance, **how)
            order = audit.order if len(possible_orders(row.sampling)) > 1 and audit.texts else ""
            cells.append(MatrixCell(row.name, audit, plain, order, command))
            if interrupted := any(run.interrupted for run in runs):
                break
    return EngineMatrix(name, battery, about["version"], tuple(cells), tokens, interrupted)
