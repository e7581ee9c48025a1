"""What several test files share: how hypothesis runs, the false-alarm rate, rows and models made to be
awkward, the standard rule written out by hand, and all figures.

There are two tiers. By default tests marked `slow` are left out, and some that draw or enumerate a lot do
less of it; ``pytest --all`` runs everything at full scale. `full`, and what depends on it, says which it is.

Every statistical assertion compares a p-value with `FALSE_ALARM`: under fresh random numbers it would fail by
chance that rarely. The seeds are fixed, so that in fact it cannot."""

import gc
import inspect
import os
from contextlib import contextmanager
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from once import once

from specsim import open_trace
from specsim.core._kernels import available_threads
from specsim.core.distributions import inverse_cdf
from specsim.models import TableModel
from specsim.rules._common.integers import columns_of
from specsim.traces import truncate, writer

# Device code runs in numba's simulator, unless this is 0; it is read when numba.cuda is first imported.
os.environ.setdefault("NUMBA_ENABLE_CUDASIM", "1")
# Kernels of engines run in Triton's interpreter, where Triton is installed.
os.environ.setdefault("TRITON_INTERPRET", "1")

#: Programs that are run by themselves.
collect_ignore = ["torture"]
#: A test that asks for one of these is slow: all figures, a Dask cluster.
SLOW_FIXTURES = {"made", "cluster"}
#: Examples of the documentation that audit or compare at full scale; `test_testing`, `test_against`,
#: `test_parts` and `test_engine_audit` do so with small ones.
SLOW_EXAMPLES = {
    "specsim._runs.merge", "specsim.auditing._shards.diagnose", "specsim.auditing._runner.audit",
    "specsim.auditing._shards.audit_shard",
    "specsim.auditing._two_sample.audit_against", "specsim.engines._audit.matrix.audit_matrix",
    "specsim.testing.assert_exact", "specsim.testing.assert_same",
}  # fmt: skip


#: Seconds for a test that --all adds, or runs at full scale; pyproject.toml has those of others.
LONGEST = 1800.0


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="slow tests too, and all tests at full scale")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """One more than there are cores: while a test waits for a process or a clock, another one runs."""
    return available_threads() + 1


class Collecting:
    """Registered, since the hooks of this file are called for files of `tests` alone."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path):
        """A file without examples is not imported to look for some."""
        found = yield
        return [one for one in found if type(one) is pytest.Module or b">>>" in file_path.read_bytes()]


def pytest_configure(config):
    settings.load_profile("fixed" if config.option.all else "few")
    config.pluginmanager.register(Collecting())
    gc.set_threshold(0)


def pytest_collection_finish(session):
    """What was imported and collected stays to the end: the garbage collector need not look at it again."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # what tests import and compile stays too


@pytest.hookimpl(tryfirst=True)  # before -m is looked at
def pytest_collection_modifyitems(config, items):
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & SLOW_FIXTURES or item.name in SLOW_EXAMPLES:
            item.add_marker("slow")
        if "full" in fixtures:
            item.add_marker("scaled")
        if config.option.all and any(map(item.get_closest_marker, ("slow", "scaled"))):
            item.add_marker(pytest.mark.timeout(LONGEST))
    if not config.option.all:
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.fixture(scope="session")
def full(pytestconfig):
    """Whether tests run at full scale."""
    return pytestconfig.option.all


@pytest.fixture(scope="session")
def models(full):
    """On how many pairs of models a law is proved."""
    return 200 if full else 28


# the constants that it finds in the sources would depend on which tests are run, and are searched for 3 seconds
providers._get_local_constants = lambda: providers._local_constants
settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.register_profile("few", settings.get_profile("fixed"), max_examples=40)

#: The chance with which a right sampler would fail one statistical assertion.
FALSE_ALARM = 1e-9

TINY = 5e-324  # the smallest subnormal number
LAST_UNIFORM = 1 - 2**-53

#: How the rows of a random pair of rational models are made.
PAIR_FLAVOURS = ("plain", "zeros", "ties", "equal", "disjoint")


def rational_pair(rng, size, order, draft_order, flavour):
    """A target and a draft, tables of Fractions over `size` tokens; "equal" shares rows, so orders must
    match."""
    p = np.empty((size,) * (order + 1), dtype=object)
    q = np.empty((size,) * (draft_order + 1), dtype=object)
    split = rng.permutation(np.arange(size) < rng.integers(1, size))  # the tokens of p in "disjoint"
    for place in np.ndindex(p.shape[:-1]):
        p[place] = _rational_row(rng, size, flavour, split)
    for place in np.ndindex(q.shape[:-1]):
        share = flavour == "equal" and rng.random() < 0.7
        q[place] = p[place] if share else _rational_row(rng, size, flavour, ~split)
    return TableModel(p), TableModel(q)


def _rational_row(rng, size, flavour, allowed):
    high = 3 if flavour == "ties" else 12
    weights = rng.integers(1, high, size)
    if flavour == "zeros":
        weights *= rng.random(size) < 0.5
    if flavour == "disjoint":
        weights *= allowed
    if not weights.any():
        weights[rng.integers(size)] = 1
    return [Fraction(int(weight), int(weights.sum())) for weight in weights]


def rational_rows(seed, count, sizes=(3, 4, 5)):
    """`count` pairs of rows in fractions: zeros, ties, equal and disjoint ones among them."""
    rng = np.random.default_rng(seed)
    for trial in range(count):
        flavour = PAIR_FLAVOURS[trial // len(sizes) % len(PAIR_FLAVOURS)]
        pair = rational_pair(rng, sizes[trial % len(sizes)], 0, 0, flavour)
        yield tuple([Fraction(weight) for weight in model.row(())] for model in pair)


def awkward_pairs(rng, count, size):
    """`count` pairs of float64 rows p, q: zeros, ties, subnormals, equal rows, rows one ulp apart, disjoint
    rows."""
    p, q = _awkward_rows(rng, count, size), _awkward_rows(rng, count, size)
    kind = rng.integers(6, size=count)
    q[kind == 0] = p[kind == 0]
    near = p[kind == 1]
    q[kind == 1] = np.where(near > 0, np.nextafter(near, rng.choice([0.0, 1.0], near.shape)), 0.0)
    left = np.arange(size) < max(1, size // 2)
    for row in np.flatnonzero(kind == 2) if size > 1 else []:
        p[row] = np.where(left, 1 / left.sum(), 0.0)
        q[row] = np.where(left, 0.0, 1 / (~left).sum())
    return p, q


def _awkward_rows(rng, count, size):
    weights = rng.random((count, size))
    kind = rng.integers(5, size=(count, 1))
    weights = np.where(kind == 0, rng.integers(1, 4, weights.shape), weights)  # ties
    weights = np.where((kind == 1) & (rng.random(weights.shape) < 0.5), 0.0, weights)
    weights = np.where(kind == 2, 10.0 ** -rng.uniform(0, 300, weights.shape), weights)
    weights = np.where((kind == 3) & (rng.random(weights.shape) < 0.5), TINY * 3, weights)
    empty = ~(weights > 0).any(axis=1)
    weights[empty, rng.integers(size, size=empty.sum())] = 1.0
    return weights / weights.sum(axis=1, keepdims=True)


def standard_step(draft_tokens, p, q, uniforms):
    """What one step of the standard rule emits, by hand: draft_tokens[γ], p[γ+1][V], q[γ][V],
    uniforms[γ+1]."""
    *tests, last = uniforms
    for i, (x, u) in enumerate(zip(draft_tokens, tests, strict=True)):
        if not u * q[i][x] < p[i][x]:
            residual = [max(a - b, 0.0) for a, b in zip(p[i], q[i], strict=True)]
            return [*draft_tokens[:i], inverse_cdf(residual if any(residual) else p[i], last)]
    return [*draft_tokens, inverse_cdf(p[len(draft_tokens)], last)]


def alias_lookup(table, u):
    """One draw from an alias table, in plain Python, with u in [0, 1)."""
    column, remainder = divmod(float(u) * len(table), 1.0)
    threshold, alias = divmod(int(table[int(column)]), 2**32)
    return int(column) if int(remainder * 2**31) < threshold else alias


def column_lookup(columns, number):
    """One draw of a number of 62 bits from an alias table of as many bits a column, in plain Python: the token,
    and the place of the number among as many of its column that draw it."""
    size = len(columns)

    def coin(bits):
        return (bits >> 30) // size << 30 | bits % 2**30

    column = (number >> 30) % size
    bits = int(columns[column])
    own, place = coin(bits), coin(number)
    if place < own:
        return column, place, own
    return (bits >> 30) % size, place - own, 2**62 // size - own


def standard_steps_of_a_pair(p, q):
    """The same for one pair of pmfs [V]: a function of the numbers of a step, the last token's and then one to
    draft and test each position, that gives the drafted tokens, their places among the numbers that draw them,
    as fractions, and the emitted tokens."""
    residual = np.maximum(p - q, 0.0)
    weights = (q, residual if residual.any() else p, p)
    draft, recovered, bonus = (columns_of(row) for row in weights)

    def step(last, *numbers):
        found = [column_lookup(draft, number) for number in numbers]
        drafted, places = [x for x, _, _ in found], [Fraction(place, among) for _, place, among in found]
        for i, (x, place, among) in enumerate(found):
            if not place < among * round(min(1.0, float(p[x]) / float(q[x])) * 2**62) >> 62:
                return drafted, places, [*drafted[:i], column_lookup(recovered, last)[0]]
        return drafted, places, [*drafted, column_lookup(bonus, last)[0]]

    return step


#: A case of a user's verifier that takes much time.
LARGE = {"flat tail 131 072"}


@contextmanager
def smaller_audits_of(cases=None):
    from specsim.auditing import _runner, _side_by_side
    from specsim.auditing._cases.battery import LEVELS, Level
    from specsim.auditing._checks import subjects
    from specsim.rules import Rule

    whole, shapes = subjects.battery, subjects.shape_cases

    def some(subject):
        if cases is None and isinstance(subject, Rule):
            return whole(subject)
        return [case for case in whole(subject) if (case.name in cases if cases else case.name not in LARGE)]

    def some_shapes(declared):
        return [case for case in shapes(declared) if case.name in cases] if cases else []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subjects, "battery", some)
        patch.setattr(subjects, "shape_cases", some_shapes)
        patch.setitem(LEVELS, "smoke", Level(2**15, 2**13, 2**29, 2**10))
        patch.setitem(
            inspect.unwrap(_runner.audit).__kwdefaults__, "wanted_tv", 0.2
        )  # that is what so few steps show
        patch.setattr(_side_by_side, "ALONE", 600.0)  # one process of a verifier, however slow the machine is
        yield


@pytest.fixture
def smaller_audits():
    """Audits at the level smoke have fewer steps, no largest vocabularies, and no calls of changing shape."""
    with smaller_audits_of():
        yield


@pytest.fixture(scope="module")
def smaller_audits_in_module():
    """The same for all tests of a module, and for what they share."""
    with smaller_audits_of():
        yield


@pytest.fixture(scope="module")
def few_cases_in_module(request):
    """Smaller audits, with the cases in `FEW_CASES` of the module."""
    with smaller_audits_of(request.module.FEW_CASES):
        yield


@pytest.fixture(scope="session")
def bank(tmp_path_factory):
    """What many tests read: bank(name, make) is what make() returned in the process that asked for it first."""
    return lambda name, make: once(tmp_path_factory, name, lambda _: make())


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """All figures, fast: (the folder, the files of each figure, the progress that it told)."""
    from figures._making import make_figures

    def make(folder):
        told = []
        return folder, make_figures(out=folder, fast=True, progress=lambda *parts: told.append(parts)), told

    return once(tmp_path_factory, "figures", make)


@pytest.fixture
def nowhere(tmp_path):
    """A path at which nothing is written."""
    yield tmp_path / "out"
    assert not (tmp_path / "out").exists()


def random_trace(folder, steps=7, vocab_size=4, seed=0, **options):
    """Steps of two drafted tokens, three to a text."""
    rng = np.random.default_rng(seed)
    with writer(folder, vocab_size=vocab_size, gamma=2, **options) as sink:
        for step in range(steps):
            p, q = rng.dirichlet(np.ones(vocab_size), (2, 3))
            sink.append(step // 3, rng.integers(vocab_size, size=2), int(rng.integers(3)), p, q)
    return open_trace(folder)


def log_of(path, p, q, tokens, accepted=None, *, top=None, keep=True, dtype="float32", documents=10, rows=60):
    """A trace of steps with p and q [steps, γ + 1, V]; a shard has at most so many `rows`."""
    steps, gamma = tokens.shape
    how = {"dtype": dtype, "top": top, "flags": accepted is not None, "rows_per_shard": rows}
    with writer(path, vocab_size=p.shape[-1], gamma=gamma, **how) as out:
        for s, drafted in enumerate(tokens.tolist()):
            sides = p[s], q[s]
            if top is not None:
                own = [*drafted, None] if keep else [None] * (gamma + 1)
                sides = [[truncate(row, top, x) for row, x in zip(side, own, strict=True)] for side in sides]
            out.append(
                s * documents // steps, drafted, None if accepted is None else int(accepted[s]), *sides
            )
    return open_trace(path)


@pytest.fixture(scope="session")
def small_trace(tmp_path_factory):
    return random_trace(tmp_path_factory.mktemp("traces") / "small")


@pytest.fixture
def simulated():
    """For tests that change device code at run time, which compiled code does not see."""
    from specsim.core import _cuda

    if not _cuda.SIMULATED:
        pytest.skip("compiled device code does not change")
