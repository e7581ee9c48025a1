"""Every number of the article's text, by the name of its macro, which begins with n: no TeX command does.

A function for each section; each returns {name: LaTeX}. Where the text around a number says more than the
number does, `hold` checks it.
"""

import re
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
from scipy import stats as distributions

from experiments._kept import kept
from experiments.audit._criteria import FOUND
from experiments.audit.independent_set import BANDS, CRITERIA, _names_of
from experiments.audit.kill_matrix import AUDIT
from experiments.literature import leviathan_lenience
from experiments.literature.claims import VERDICTS as CLAIM_VERDICTS
from experiments.literature.published.values import CHEN, LEVIATHAN
from experiments.simulation import acceptance_by_temperature, iid_gap
from paper.latex import code, decimal, listed, percent, short, text, whole, word
from paper.sources import Sources, hold, the
from specsim import default_pair, mistakes, rules
from specsim.auditing import LEVELS, _runner
from specsim.auditing._cases.battery import decoder_battery
from specsim.auditing._checks import counts as tallies
from specsim.auditing._checks import findings as judge
from specsim.auditing._checks import tables as plan
from specsim.auditing._checks.subjects import RuleSubject, Subject, function_subject
from specsim.auditing._results.audit import BUDGET, WANTED_TV
from specsim.auditing._verifier.local import Local
from specsim.core._streams import PER_SLOT, Purpose, uniform
from specsim.core.stats import DEVIATIONS, POWER
from specsim.engines._audit.matrix import BATTERIES, SETTINGS
from specsim.engines._planted.architectures import ARCHITECTURES
from specsim.mistakes import _reference as pieces
from specsim.planning import Constant, Goodput, preset, presets, sweep_batch
from specsim.stats import detectable_tv
from specsim.theory._enumeration import MAX_DRAFTS

Macros = dict[str, str]

ROWS = "wrong row or position"
#: The servers that are simulated: acceptance, draft length, and requests in a batch.
SERVE_ALPHA, SERVE_GAMMA, SERVE_BATCHES = 0.6, 4, (1, 256)
FULL = "Figures and tables at full size."
FAST = (
    "Made from the fast tables, which simulate less: a draft, whose numbers are noisier than they should be."
)


def macros(sources: Sources) -> Macros:
    """All of them. Raises ValueError where one is defined twice, or the article says what its tables do
    not.
    """
    parts = (
        about, rules_and_proof, random_numbers, audit, planted, power, calibration, kill_matrix, unseen,
        diagnosis, engine_code, engines, literature, lenience, gap, precision, temperature, synthetic, lossy,
        lookahead, systems, requests, claims,
    )  # fmt: skip
    found: Macros = {}
    for part in parts:
        for name, value in part(sources).items():
            if name in found:
                raise ValueError(f"{name} is defined twice")
            found[name] = value
    return found


def about(sources: Sources) -> Macros:
    known = mistakes.catalogue() + mistakes.exact_controls()
    threads = {thread for mistake in known for thread in mistake.threads}
    return {
        "nVersion": sources.version,
        "nTables": FAST if sources.fast else FULL,
        "nThreads": whole(len(threads)),
    }


# --- rules, proof, random numbers ------------------------------------------------------------------------


def rules_and_proof(sources: Sources) -> Macros:
    target, draft = default_pair()
    found = sources.rules
    wide = {entry["drafts"].partition(", ")[2] for entry in found["entries"]} - {str(found["gamma"])}
    (shape,) = wide
    chains, tokens = shape.split(" × ")
    return {
        "nTargetOrder": str(target.order + 1),
        "nDraftOrder": str(draft.order + 1),
        "nRulesGamma": word(found["gamma"]),
        "nRulesWide": f"{word(int(chains))} chains of {word(int(tokens))}",
        "nRulesSteps": whole(found["steps"]),
        "nRulesError": decimal(max(entry["error"] for entry in found["entries"]), 3),
        "nRulesChain": word(len(rules.names("chain"))),
        "nRulesTree": word(len(rules.names("tree"))),
        "nRulesLossy": word(len(rules.names("lossy"))),
        "nRulesControls": word(len(rules.names("controls"))),
        "nMaxDrafts": whole(MAX_DRAFTS),
        "nProofModels": whole(_runner.MODELS),
    }


def random_numbers(sources: Sources) -> Macros:
    """`uniform` gives multiples of 2^-bits."""
    drawn = [Fraction(uniform((1, 2), Purpose.DRAFT, step, 0)) for step in range(256)]
    cells = sources.rows("simulated_speed", kind="simulated")
    deviations = np.array([row["deviation"] for row in cells])
    (steps,) = {row["steps"] for row in cells}
    return {
        "nUniformsPerBlock": word(PER_SLOT),
        "nUniformBits": str(max(number.denominator for number in drawn).bit_length() - 1),
        "nSimCells": whole(len(cells)),
        "nSimSteps": whole(steps),
        "nSimLow": decimal(min(row["alpha"] for row in cells), 1),
        "nSimHigh": decimal(max(row["alpha"] for row in cells), 1),
        "nSimWorst": decimal(np.abs(deviations).max(), 1),
        "nSimP": decimal(distributions.chi2.sf((deviations**2).sum(), len(cells)), 2),
    }


# --- the audit -------------------------------------------------------------------------------------------


def audit(sources: Sources) -> Macros:
    rule = RuleSubject(rules.get("standard"), threads=1)
    verifier = function_subject(Local(pieces.verify), "verify")
    first = rule.plan(0, "quick")
    hold("the two-token case is a built-in rule's first", rule.cases[0].target.vocab_size == 2)
    return {
        "nVerifierCases": whole(len(verifier.cases)),
        "nRuleCases": whole(len(rule.cases)),
        "nDecoderCases": word(len(decoder_battery())),
        "nPrefixCells": whole(tallies.MAX_PREFIX_CELLS),
        "nPitBins": whole(tallies.PIT_BINS),
        "nConcentrations": word(len(DEVIATIONS)),
        "nEpsilonLow": short(DEVIATIONS[0]),
        "nEpsilonHigh": decimal(DEVIATIONS[-1], 1),
        "nLooks": word(len(plan.LOOKS)),
        "nLooksFirst": str(round(-np.log2(plan.LOOKS[0]))),
        "nBudget": short(BUDGET),
        "nRuleTests": whole(_tests(rule)),
        "nVerifierTests": whole(_tests(verifier)),
        "nPower": decimal(POWER, 3),
        "nDetectableRule": short(detectable_tv(2, first.steps, BUDGET / _tests(rule))),
        "nDetectableBins": short(
            detectable_tv(tallies.PIT_BINS, LEVELS["quick"].verifier, BUDGET / _tests(verifier))
        ),
        "nVerifierSteps": whole(LEVELS["quick"].verifier),
        "nCertifiedCells": whole(judge.MAX_CERTIFIED_CELLS),
    }


def _tests(subject: Subject) -> int:
    return sum(subject.plan(index, "quick").tests for index in range(len(subject.cases)))


def planted(sources: Sources) -> Macros:
    small, *_ = BATTERIES
    return {
        "nArchitectures": word(len(ARCHITECTURES)),
        "nBatterySmall": whole(len(SETTINGS[small])),
        "nBatteryLarge": whole(sum(map(len, SETTINGS.values()))),
    }


def power(sources: Sources) -> Macros:
    found = sources.power
    known = [row for row in found["mistakes"] if row["best"]]
    quick, standard = found["claimed"]["quick"], found["claimed"]["standard"]
    large = [row for row in known if row["best"]["tv"] >= quick]
    middle = [row for row in known if standard <= row["best"]["tv"] < quick]
    hold(
        "all that a level must see was rejected in every run",
        all(row["run"]["rejected"] == row["run"]["runs"] for row in large + middle)
        and all(row["run"]["level"] == "quick" for row in large),
    )
    tight = min(large, key=lambda row: row["run"]["steps"] / row["best"]["needed"])
    beyond = [row for row in known if row["first_level"] is None and row["best"]["needed"]]
    edges = {"proposal is not the law drawn from", "precision and edges"}
    hold("those beyond are roundings and edges", {row["family"] for row in beyond} <= edges)
    half = the(known, lambda row: row["name"] == "float16_ratio")
    hold("float16_ratio is one of them", half in beyond)
    wrong = {row["verifier"] for row in kept("kill_matrix") if not row["exact"]}
    hold("the matrix and the power are of the same mistakes", len(found["mistakes"]) == len(wrong))
    return {
        "nMistakes": whole(len(found["mistakes"])),
        "nMistakesKnown": whole(len(known)),
        "nMistakesLarge": whole(len(large)),
        "nMistakesMiddle": word(len(middle)),
        "nMistakesQuick": decimal(quick, 2),
        "nMistakesStandard": decimal(standard, 3),
        "nTightName": text(tight["name"]),
        "nTightNeeded": whole(round(tight["best"]["needed"])),
        "nTightSteps": whole(tight["run"]["steps"]),
        "nMistakesBeyond": word(len(beyond)),
        "nHalfNeeded": short(half["best"]["needed"]),
    }


def calibration(sources: Sources) -> Macros:
    rows, whole_audits = sources.power["calibration"], sources.power["whole"]
    (each,) = {row["audits"] for row in rows}
    bins = np.sum([row["bins"] for row in rows], axis=0)
    uniformities = [row["uniformity"] for row in rows if row["uniformity"] is not None]
    return {
        "nCalibrated": whole(len(rows)),
        "nCalibrationEach": whole(each),
        "nCalibrationBudget": short(sources.power["calibration_budget"]),
        "nCalibrationAudits": whole(each * len(rows)),
        "nCalibrationAlarms": word(sum(row["alarms"] for row in rows)),
        "nUniformities": whole(len(uniformities)),
        "nUniformityLeast": short(min(uniformities)),
        "nCalibrationPs": whole(bins.sum()),
        "nCalibrationBins": whole(len(bins)),
        "nCalibrationP": decimal(distributions.chisquare(bins).pvalue, 2),
        "nWholeAlarms": word(sum(row["alarms"] for row in whole_audits)),
        "nWholeAudits": whole(sum(row["audits"] for row in whole_audits)),
    }


# --- what tests see --------------------------------------------------------------------------------------


def kill_matrix(sources: Sources) -> Macros:
    matrix = sources.matrix
    criteria = [column for column in matrix.columns if column.name != AUDIT]
    about = {column.name: column.about for column in criteria}
    wrong = [row for row in matrix.rows if not row.exact]
    kernels, decoders = ({*matrix.wrong(decoders=kind)} for kind in (False, True))
    missed = {column.name: {*matrix.missed(column.name)} for column in matrix.columns}
    counts = {column.name: len(missed[column.name] & kernels) for column in criteria}
    least, most = min(counts.values()), max(counts.values())
    together = set.intersection(*(missed[column.name] & kernels for column in criteria))
    hold("what the audit misses of verifiers no criterion sees", missed[AUDIT] & kernels <= together)
    rows = {row.name for row in wrong if row.family == ROWS} & kernels
    seen = [len(missed[column.name] & rows) for column in criteria]
    exact = [row for row in matrix.rows if row.exact and not row.decoder]
    hold("exact verifiers pass every criterion", _all_pass(sources, [row.name for row in exact], about))
    hold("the audit rejects no exact one", not _failed_by_audit(sources))
    for name in ("lenience", "shared_gumbel"):
        hold(
            f"{name} passes the wide test alone",
            name in missed["vLLM V2 wide"] and name not in missed["vLLM V2 narrow"],
        )
    validity = [name for name, count in counts.items() if count == most]
    hold(
        "resampling p passes tests of validity", all("resamples_target" in missed[name] for name in validity)
    )
    tvs = {row.name: row.tv for row in wrong}
    left = sorted(missed[AUDIT], key=[row.name for row in wrong].index)
    runs = {row["name"]: row.get("run") for row in sources.power["mistakes"]}
    standard = [
        name
        for name in left
        if (run := runs[name]) and run["level"] == "standard" and run["rejected"] == run["runs"]
    ]
    hold("what passes is small", all(_deviation(sources, name) < 0.01 for name in left))
    return {
        "nCriteria": word(len(criteria)),
        "nKillLevel": code(matrix.level),
        "nKillExact": word(len(exact)),
        "nMistakesDecoders": whole(len(decoders)),
        "nMistakesVerifiers": whole(len(kernels)),
        "nMissedLeast": whole(least),
        "nMissedMost": whole(most),
        "nMissedLeastName": _columns(name for name, count in counts.items() if count == least),
        "nMissedMostName": _columns(validity),
        "nMissedTogether": whole(len(together)),
        "nMissedAudit": whole(len(missed[AUDIT] & kernels)),
        "nMissedAuditDecoders": word(len(missed[AUDIT] & decoders)),
        "nFamilyRows": whole(len(rows)),
        "nFamilyRowsLeast": word(min(seen)),
        "nFamilyRowsMost": word(max(seen)),
        "nFamilyRowsAudit": word(len(missed[AUDIT] & rows)),
        "nWideVocabulary": _vocabulary(about["vLLM V2 wide"]),
        "nNarrowVocabulary": _vocabulary(about["vLLM V2 narrow"]),
        "nResamplesTv": decimal(tvs["resamples_target"], 3),
        "nOneUniformTv": decimal(tvs["one_uniform"], 2),
        "nOneUniformPassed": word(sum("one_uniform" in missed[column.name] for column in criteria)),
        "nAuditMissedNames": listed([code(name) for name in left]),
        "nAuditStandardNames": listed([code(name) for name in standard]),
    }


def _deviation(sources: Sources, mistake: str) -> float:
    """In its best case, or on the pair of the matrix where that is not known."""
    best = the(sources.power["mistakes"], lambda row: row["name"] == mistake)["best"]
    (row,) = (row for row in sources.matrix.rows if row.name == mistake)
    return best["tv"] if best else row.tv


def _all_pass(sources: Sources, names: list[str], columns: Iterable[str]) -> bool:
    cells = [sources.matrix.cell(name, column) for column in columns for name in names]
    return all(cell is not None and cell.passed == cell.runs for cell in cells)


def _failed_by_audit(sources: Sources) -> list[str]:
    exact = [row.name for row in sources.matrix.rows if row.exact]
    return [name for name in exact if not _all_pass(sources, [name], [AUDIT])]


def _columns(names: Iterable[str]) -> str:
    return listed([rf"\emph{{{text(name)}}}" for name in names])


def _vocabulary(about: str) -> str:
    (size,) = re.findall(r"V = ([\d,]+)", about)
    return whole(int(size.replace(",", "")))


def unseen(sources: Sources) -> Macros:
    """Mistakes of independent authors, by the first audits."""
    found = sources.unseen
    verifiers, decoders = found["wrong verifier"], found["wrong decoder"]
    right = found["right verifier"] + found["right decoder"]
    accused = [row for row in right if row["found"]]
    broken = {row["subject"] for row in accused if row["verdict"] == "broken"}
    known = {"fourth:draft_text_lags_behind", "sixth:poor_draft", "seventh:r04"}
    hold("three were called broken: two were refused short texts, one took minutes", broken == known)
    biased = {row["subject"] for row in accused if row["verdict"] == "biased"}
    known |= {"thirteenth:r04", "thirteenth:r12"}
    hold("two were called biased, whose rows end together", broken | biased == known and len(accused) == 5)
    sets = list(dict.fromkeys(row["set"] for row in verifiers + decoders))
    by_set = [[row["found"] for row in verifiers if row["set"] == each] for each in sets]
    shares = [sum(some) / len(some) for some in by_set if some]
    missed = {one.name: sum(row[one.name] for row in verifiers) for one in CRITERIA}
    together = sum(all(row[name] for name in missed) for row in verifiers)
    names = np.array([_names_of(each)[1:] for each in sets], dtype=int).sum(axis=0)
    hits, texts = (sum(row["found"] for row in some) for some in (verifiers, decoders))
    return {
        "nUnseenSets": word(len(sets)),
        "nUnseenLeast": decimal(BANDS[1], 2),
        "nUnseenVerifiers": whole(len(verifiers)),
        "nUnseenFound": whole(hits),
        "nUnseenMissed": whole(len(verifiers) - hits),
        "nUnseenShare": percent(hits / len(verifiers)),
        "nUnseenDecoders": whole(len(decoders)),
        "nUnseenDecodersFound": whole(texts),
        "nUnseenWorst": percent(min(shares)),
        "nUnseenBest": percent(max(shares)),
        "nUnseenCriteriaLeast": whole(min(missed.values())),
        "nUnseenCriteriaMost": whole(max(missed.values())),
        "nUnseenTogether": whole(together),
        "nUnseenRight": whole(len(right)),
        "nUnseenAccused": word(len(accused)),
        "nUnseenAccusedVerifiers": word(sum("verifier" in row["kind"] for row in accused)),
        "nUnseenAccusedDecoders": word(sum("decoder" in row["kind"] for row in accused)),
        **{
            f"nUnseen{name}": whole(number)
            for name, number in zip(("Diagnosed", "Named", "Rightly", "Lacking"), names[1:5], strict=True)
        },
    }


def diagnosis(sources: Sources) -> Macros:
    found = sources.diagnoses
    caught = [row for row in found["rows"] if "named" in row]
    first = [row for row in caught if row["right"]]
    off = [row for row in caught if row["off_catalogue"]]
    unknown = [row for row in caught if not row["without"]]
    return {
        "nDiagnosesRows": whole(len(found["rows"])),
        "nDiagnosesLevel": text(found["level"]),
        "nDiagnosesCaught": whole(len(caught)),
        "nDiagnosesFirst": whole(len(first)),
        "nDiagnosesFirstShare": percent(len(first) / len(caught)),
        "nDiagnosesOff": whole(len(off)),
        "nDiagnosesOffFirst": whole(sum(row["right"] for row in off)),
        "nDiagnosesUnknown": whole(len(unknown)),
        "nDiagnosesUnknownShare": percent(len(unknown) / len(caught)),
        "nDiagnosesWrong": word(len(caught) - len(unknown)),
    }


def engine_code(sources: Sources) -> Macros:
    rows, there = sources.code, sources.on_a_gpu
    failed = [row for row in rows if row["verdict"] in FOUND]
    right = {row["engine"] for row in rows if row["verdict"] == "consistent"}
    named = {"vllm", "vllm2", "sglang:chain", "tensorrt-llm", "lmdeploy", "hf"}
    hold("the samplers that are named are consistent", named <= right)
    hold("all others failed", len(failed) + len(right) == len(rows))
    hold("all on a GPU are consistent", {row["verdict"] for row in there["rows"]} == {"consistent"})
    powerful = [row["powerful"] for row in there["rows"]]
    return {
        "nCodes": whole(len(rows)),
        "nCodesOrigins": whole(len({row["origin"] for row in rows})),
        "nCodesRight": whole(len(right)),
        "nCodesFailed": whole(len(failed)),
        "nGpu": text(there["device"].partition(" (")[0]),
        "nGpuCodes": word(len(there["rows"])),
        "nGpuPowerLeast": whole(min(powerful)),
        "nGpuPowerMost": whole(max(powerful)),
        "nWanted": decimal(WANTED_TV, 2),
    }


def engines(sources: Sources) -> Macros:
    plain, drafting = {}, {}
    for name, rows in sources.served.items():
        bad = any(row["verdict"] in FOUND for row in rows)
        (plain if name.endswith("no draft") else drafting)[name] = bad
    hold("without drafts nothing was found", not any(plain.values()))
    (head,) = (rows for name, rows in sources.served.items() if name == "llama.cpp, multi-token prediction")
    hold("with a head texts have tokens of probability 0", "probability 0" in head[0]["findings"])
    return {
        "nServed": whole(len(sources.served)),
        "nServedEngines": word(len({rows[0]["package"] for rows in sources.served.values()})),
        "nServedConsistent": word(sum(not bad for bad in drafting.values())),
        "nServedFailed": word(sum(drafting.values())),
        "nServedNames": listed(
            [text(f"{name.replace(', ', ' (')})") for name, bad in drafting.items() if bad]
        ),
    }


# --- the literature --------------------------------------------------------------------------------------


def literature(sources: Sources) -> Macros:
    verdicts = Counter(row.verdict for row in sources.published)
    leviathan = Counter(row.verdict for row in sources.published if row.paper == LEVIATHAN)
    chen = [row for row in sources.published if row.paper == CHEN]
    speeds = [row for row in chen if row.quantity.startswith("speed-up")]
    (nucleus,) = (row for row in speeds if row.verdict != "reproduced")
    hold("XSum, nucleus is the one that is no ratio", "XSum, nucleus" in nucleus.quantity)
    return {
        "nPublished": whole(len(sources.published)),
        "nPublishedPapers": whole(len({row.paper for row in sources.published})),
        "nPublishedChecked": whole(_computed(verdicts)),
        "nPublishedReproduced": whole(verdicts["reproduced"]),
        "nPublishedRounding": whole(verdicts["within rounding"]),
        "nPublishedWithin": whole(verdicts["within bounds"]),
        "nPublishedDisjoint": whole(verdicts["disjoint"]),
        "nPublishedUnavailable": whole(verdicts["inputs unavailable"]),
        "nPublishedNot": word(verdicts["not reproducible"]),
        "nLeviathanChecked": whole(_computed(leviathan)),
        "nLeviathanReproduced": whole(leviathan["reproduced"]),
        "nLeviathanRounding": word(leviathan["within rounding"]),
        "nChenReproduced": word(len(speeds) - 1),
    }


def _computed(verdicts: Counter[str]) -> int:
    return sum(verdicts[name] for name in ("reproduced", "within rounding", "not reproducible"))


def lenience(sources: Sources) -> Macros:
    rows = sources.rows("leviathan_lenience", lenience=1.0)
    best = max(rows, key=lambda row: row["improvement"])
    hold("the printed speed-up is above the band", max(row["high"] for row in rows) < float(best["printed"]))
    hold("every γ was tried", len(rows) == len(leviathan_lenience.GAMMAS))
    return {"nLenienceMost": decimal(best["improvement"], 2), "nLeniencePrinted": best["printed"]}


# --- experiments of our own ------------------------------------------------------------------------------


def gap(sources: Sources) -> Macros:
    plain, moved = iid_gap.WEIGHTS
    rows = sources.rows("iid_gap", weight=plain)

    def value(quantity: str, of: str, x: int) -> float:
        return the(rows, lambda row: (row["quantity"], row["of"], row["x"]) == (quantity, of, x))["value"]

    def overstated(of: str, weight: float = plain) -> list[float]:
        found = sources.rows("iid_gap", weight=weight, quantity="overstatement", of=of)
        return [row["value"] for row in found]

    def lost(*alphas: str) -> float:
        found = sources.rows("iid_gap", quantity="improvement lost")
        return max(row["value"] for row in found if row["of"] in alphas)

    context, verified = overstated("alpha_context"), overstated("alpha_verified")
    anywhere, measured = (value(iid_gap.TOKENS, of, iid_gap.RUN) for of in ("anywhere", "measured"))
    hold("steps from anywhere emit more", anywhere > measured)
    hold("α drafted loses the most", lost("alpha_drafted") > lost("alpha_context", "alpha_verified"))
    return {
        "nGapLength": whole(iid_gap.FAST_LENGTH if sources.fast else iid_gap.LENGTH),
        "nGapCorrelation": decimal(value("autocorrelation", "acceptance", 1), 2),
        "nGapCorrelationBeta": decimal(value("autocorrelation", "β", 1), 2),
        "nGapFirst": whole(min(iid_gap.GAMMAS)),
        "nGapLast": whole(max(iid_gap.GAMMAS)),
        "nGapContextLow": percent(min(context), 1),
        "nGapContextHigh": percent(max(context), 1),
        "nGapVerifiedLow": percent(min(verified), 1),
        "nGapVerifiedHigh": percent(max(verified), 1),
        "nGapDraftedLow": percent(min(overstated("alpha_drafted")), 0),
        "nGapDraftedMovedLow": percent(min(overstated("alpha_drafted", moved)), 0),
        "nGapLost": percent(lost("alpha_drafted"), 0),
        "nGapLostOthers": percent(lost("alpha_context", "alpha_verified"), 1),
        "nGapGamma": whole(iid_gap.RUN),
        "nGapAnywhere": decimal(anywhere, 2),
        "nGapMeasured": decimal(measured, 2),
    }


def precision(sources: Sources) -> Macros:
    rows = sources.rows("precision")
    tv = {tuple(row[key] for key in ("tail", "vocab_size", "dtype", "drafts")): row["tv"] for row in rows}
    tails, sizes = {row["tail"] for row in rows}, sorted({row["vocab_size"] for row in rows})
    rounded, unrounded = "from the rounded q", "from the unrounded q"

    def of(dtype: str, sizes: Iterable[int] = sizes) -> list[float]:
        return [tv[tail, size, dtype, rounded] for tail in tails for size in sizes]

    def better(size: int) -> bool:
        return all(tv[tail, size, "float16", rounded] < tv[tail, size, "bfloat16", rounded] for tail in tails)

    *good, worse = sizes
    hold("float16 is better at all sizes but the last", all(map(better, good)))
    hold("and worse there", min(of("float16", [worse])) > max(of("bfloat16", [worse])))
    added = max(tv[t, n, d, unrounded] - tv[t, n, d, rounded] for t, n, d, which in tv if which == rounded)
    caused = {key: value for key, value in tv.items() if key[3] == rounded}
    hold(
        "the mistake adds less than rounding does",
        all(tv[t, n, d, unrounded] < 2.0 * value for (t, n, d, _), value in caused.items()),
    )
    return {
        "nPrecisionSingle": short(float(np.mean(of("float32")))),
        "nPrecisionBrainLow": short(min(of("bfloat16"))),
        "nPrecisionBrainHigh": short(max(of("bfloat16"))),
        "nPrecisionBetterUpTo": whole(good[-1]),
        "nPrecisionWorse": whole(worse),
        "nPrecisionHalfLow": short(min(of("float16"))),
        "nPrecisionHalfHigh": short(max(of("float16"))),
        "nPrecisionMistake": short(added),
    }


def temperature(sources: Sources) -> Macros:
    rows = sources.rows("acceptance_by_temperature", pair="n-gram", quantity="temperature")

    def alpha(sides: str, value: float) -> float:
        return the(rows, lambda row: (row["sides"], row["value"]) == (sides, value))["alpha"]

    shown = dict(zip(("Zero", "Half", "One", "Two"), (0.0, 0.5, 1.0, 2.0), strict=True))
    found = [alpha("both", value) for value in shown.values()]
    hold("α is not monotone", found != sorted(found) and found != sorted(found, reverse=True))
    hold("the target alone, sharpened, accepts less", alpha("target", 0.0) < alpha("target", 1.0))
    return {
        **{f"nTemperature{name}": decimal(alpha("both", value), 2) for name, value in shown.items()},
        "nTemperaturesShown": listed([f"{value:g}" for value in shown.values()]),
        "nTemperatureTarget": decimal(alpha("target", 0.0), 2),
        "nTemperatureOverlap": decimal(acceptance_by_temperature.OVERLAP, 1),
    }


def synthetic(sources: Sources) -> Macros:
    rows = sources.rows("synthetic_acceptance")
    gamma, length = rows[0]["gamma"], rows[0]["length"]
    requests = max(row["x"] for row in rows if row["quantity"] == "improvement of a batch")
    settings = {
        "Length": "vLLM, length",
        "Independent": "independent acceptances",
        "Rates": "vLLM, equal rates",
    }

    def value(quantity: str, setting: str, x: float) -> float:
        near = [row for row in rows if row["quantity"] == quantity and abs(row["x"] - x) < 1e-9]
        return the(near, lambda row: row["setting"] == setting)["value"]

    def deviation(setting: str) -> float:
        return value("deviation", setting, length)

    def batch(setting: str) -> float:
        return value("improvement of a batch", setting, requests)

    hold(
        "llama.cpp draws independent acceptances",
        deviation("llama.cpp, length") == deviation("independent acceptances"),
    )
    hold(
        "variance is paid for",
        [*map(batch, settings.values())] == sorted(map(batch, settings.values()))[::-1],
    )
    for setting in ("SGLang, match-expected", "SGLang, multinomial"):
        alone = value("improvement of a batch", setting, 1.0)
        hold(f"{setting} shows nothing of a batch", abs(batch(setting) - alone) < 1e-9)
    return {
        "nSyntheticLength": decimal(length, 1),
        "nSyntheticGamma": whole(gamma),
        "nSyntheticBatch": whole(requests),
        **{f"nSyntheticDeviation{name}": decimal(deviation(of), 2) for name, of in settings.items()},
        **{f"nSyntheticBatch{name}": decimal(batch(of), 2) for name, of in settings.items()},
    }


def lossy(sources: Sources) -> Macros:
    rows = sources.rows("lossy_speed", group="lossy")

    def near(rule: str) -> tuple[float, dict[str, float]]:
        """The setting whose lenience is nearest to a half."""
        found = {float(row["rule"].partition("=")[2]): row for row in rows if row["line"] == rule}
        nearest = min(found, key=lambda lenience: abs(lenience - 0.5))
        return nearest, found[nearest]

    (lenience, plain), (_, scaled) = near("lenience"), near("scaled_lenience")
    aims = [row["tv"] for row in rows if row["line"].startswith(("typical", "greedy_lenience"))]
    hold("both residuals accept the same drafts", plain["tokens"] == scaled["tokens"])
    hold("and (p - q)₊ is nearer to the target", plain["tv"] < scaled["tv"])
    return {
        "nLossyStandard": decimal(the(rows, lambda row: row["line"] == "standard")["tokens"], 2),
        "nLossyLenience": decimal(lenience, 3),
        "nLossyLenienceTokens": decimal(plain["tokens"], 2),
        "nLossyLenienceTv": decimal(plain["tv"], 3),
        "nLossyScaledTv": decimal(scaled["tv"], 3),
        "nLossyAimTv": decimal(min(aims), 2),
    }


def lookahead(sources: Sources) -> Macros:
    rows = sources.rows("draft_length_policies")
    policies = [row for row in rows if row["policy"] != "oracle"]
    names = {row["policy"] for row in policies}
    wins = Counter(row["policy"] for row in policies if row["difference"] < -2.0 * row["difference_error"])
    losses = [row for row in policies if row["difference"] > 2.0 * row["difference_error"]]
    oracle = [-row["difference"] for row in rows if row["policy"] == "oracle"]
    hold(
        "there are four comparisons of each", all(n == 4 for n in Counter(r["policy"] for r in rows).values())
    )
    hold("no policy wins in all four", max(wins.values()) < 4)
    return {
        "nPolicies": word(len(names)),
        "nPolicyTrials": whole(len(policies)),
        "nPolicyWins": word(wins.total()),
        "nPolicyLosses": word(len(losses)),
        "nOracleLow": decimal(min(oracle), 2),
        "nOracleHigh": decimal(max(oracle), 2),
    }


def systems(sources: Sources) -> Macros:
    """Drafting systems; those with `nearer` rest on a number that was chosen."""
    rows = kept("methods")
    plain = [row for row in rows if row["tv"] == 0 and "nearer=" not in row["spec"]]
    batch = max(int(column.removeprefix("speed_")) for column in rows[0] if column.startswith("speed_"))
    (steps,) = {row["steps"] for row in rows}
    return {
        "nMethods": whole(len(rows)),
        "nMethodsAssumed": word(sum("nearer=" in row["spec"] for row in rows)),
        "nMethodsLossless": whole(len(plain)),
        "nMethodsFaster": whole(sum(row["speed_1"] > 1 for row in plain)),
        "nMethodsFasterBatch": word(sum(row[f"speed_{batch}"] > 1 for row in plain)),
        "nMethodsBatch": whole(batch),
        "nMethodsSteps": whole(steps),
        "nMethodsError": decimal(max(row["error"] for row in rows), 3),
    }


def requests(sources: Sources) -> Macros:
    """Full servers, simulated here: it takes a second."""
    settings = {"alpha": SERVE_ALPHA, "prompt": 128, "prefill": False, "requests": 2560, "rng": 1}
    gains = []
    for policy in (Constant(SERVE_GAMMA), Goodput()):
        swept = sweep_batch(
            preset("llama-8b"), policy, over={"max_batch": SERVE_BATCHES}, progress=False, **settings
        )
        gains.append([swept.capacity_gain(i).mean for i in range(len(SERVE_BATCHES))])
    (one, large), (kept_one, kept_large) = gains
    hold("a chain pays for one text and not in a large batch", one > 1 > large)
    hold("the policy gains in both", min(kept_one, kept_large) > 1)
    return {
        "nServePreset": text(presets()["llama-8b"]),
        "nServeAlpha": decimal(SERVE_ALPHA, 1),
        "nServeGamma": word(SERVE_GAMMA),
        "nServeOne": word(SERVE_BATCHES[0]),
        "nServeLarge": whole(SERVE_BATCHES[1]),
        "nServeGainOne": decimal(one, 2),
        "nServeGainLarge": decimal(large, 2),
        "nServePolicyOne": decimal(kept_one, 2),
        "nServePolicyLarge": decimal(kept_large, 2),
    }


def claims(sources: Sources) -> Macros:
    rows = sources.rows("claims")
    right, conditional, wrong = (sum(row["verdict"] == verdict for row in rows) for verdict in CLAIM_VERDICTS)
    return {
        "nClaims": whole(len(rows)),
        "nClaimDocuments": word(len({row["document"] for row in rows})),
        "nClaimsRight": whole(right),
        "nClaimsOnly": whole(conditional),
        "nClaimsWrong": whole(wrong),
    }
