"""The verification code of research, from wheels (`make test-engines`) and from clones in
results/clones/OWNER/NAME; what is not there is skipped."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from conftest import FALSE_ALARM
from engine_laws import chain_p_value, decoder_p_value, markov_pair, rows_of, tree_p_value
from own_code import misled, own

from experiments.engines import eagle, lucidrains, medusa
from specsim.models import Tree

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # for tensors of a few numbers threads are only in each other's way

#: Steps of verifiers of a whole batch, and of one row after the other.
CHAINS = {"flashspec": 8000, "dflash": 3000, "deepspec": 3000, "naive_speculate": 3000}
LOOPS = (
    "seqspecdecod:verify", "seqspecdecod:naive", "feifeibear:verify", "feifeibear:stateless",
    "jaymody:verify", "layerskip:verify", "lookahead:verify", "romsto:verify",
)  # fmt: skip


def code(name):
    """A function of a module in experiments/engines, or a skip."""
    return own(f"experiments.engines.{name}")


@pytest.mark.slow
@pytest.mark.parametrize("name", CHAINS)
def test_chains_have_the_targets_law(name):
    verifier = code(f"{name}:verify")
    assert chain_p_value(verifier, CHAINS[name]) > FALSE_ALARM
    assert chain_p_value(misled(verifier), CHAINS[name]) < FALSE_ALARM


@pytest.mark.slow
def test_eagle_harness_has_the_targets_law_on_siblings_without_replacement():
    verifier, parents = code("eagle_harness:verify"), (0, 0, 1, 1, 2)
    assert tree_p_value(verifier, 1500, Tree(parents, "without replacement")) > FALSE_ALARM
    assert tree_p_value(verifier, 1500, Tree(parents, "top")) < FALSE_ALARM


@pytest.mark.slow
def test_eagle_2_has_the_targets_law():
    verifier, tree = code("eagle:verify_2"), Tree((0, 0, 1, 1, 2), "top")
    assert tree_p_value(verifier, 1500, tree) > FALSE_ALARM

    def misled(parents, tokens, p, q, rng):
        return verifier(parents, tokens, p.roll(1, dims=-1), q, rng)

    assert tree_p_value(misled, 1500, tree) < FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
def test_loops_have_the_targets_law(name):
    """That this sees loops which have not, the next tests show."""
    assert decoder_p_value(code(name), 800, order=2) > FALSE_ALARM


def test_lucidrains_has_the_targets_law():
    package = pytest.importorskip("speculative_decoding")
    assert decoder_p_value(lucidrains.verify, 800, order=2) > FALSE_ALARM
    lenient = partial(package.speculative_decoding, lenience=0.5)
    assert decoder_p_value(lucidrains.adapt(lenient), 800, order=2) < FALSE_ALARM


def test_eagle_has_the_targets_law_on_siblings_without_replacement():
    pytest.importorskip("eagle.model.utils")
    verifier = eagle.verify
    parents = (0, 0, 1, 1, 2)
    assert tree_p_value(verifier, 1500, Tree(parents, "without replacement")) > FALSE_ALARM
    assert tree_p_value(verifier, 1500, Tree(parents, "top")) < FALSE_ALARM


def test_medusa_is_lossy():
    verifier = medusa.adapt(pytest.importorskip("medusa.model.utils").evaluate_posterior)
    assert tree_p_value(verifier, 500, Tree((0, 0, 1, 1, 2), "top")) < FALSE_ALARM


def test_medusa_accepts_what_typical_acceptance_accepts():
    """On a chain: the drafted tokens up to the first whose p is not above min(.3, .09·exp(-H))."""
    verifier = medusa.adapt(pytest.importorskip("medusa.model.utils").evaluate_posterior)
    target, draft = markov_pair()
    tree = Tree((0, 1, 2))
    rows = rows_of(target, draft, tree, 300)
    for step, tokens in enumerate(rows.draft_tokens):
        p = rows.p[step]
        entropy = -(p * np.log(p + 1e-5)).sum(axis=1)
        passed = [p[i, x] > min(0.3, 0.09 * np.exp(-entropy[i])) for i, x in enumerate(tokens)]
        path, _ = verifier(
            tree.parents,
            tokens,
            torch.tensor(p).float(),
            torch.tensor(rows.q[step]),
            np.random.default_rng(0),
        )
        assert len(path) == [*passed, False].index(False)


# --- what was found: if one of these fails, the code was repaired, and the page is older ------------------


@pytest.mark.slow
def test_eagles_batched_verification_is_biased():
    """Where the number of paths is not the depth, and a bonus follows a rejected sibling."""
    verifier = code("eagle:batched")
    assert tree_p_value(verifier, 3000, Tree((0, 0, 0), "without replacement")) < FALSE_ALARM


def test_capped_hierarchical_decoding_emits_impossible_tokens():
    decode = code("seqspecdecod:capped")
    target, draft = markov_pair()
    rng, impossible = np.random.default_rng(1), 0
    for _ in range(100):
        tokens = [0, *decode(target, draft, [0], 5, None, rng)]
        impossible += any(target.row([a])[b] == 0 for a, b in pairwise(tokens))
    assert impossible


def test_sequoia_overwrites_accepted_tokens():
    assert decoder_p_value(code("sequoia:verify"), 300) < FALSE_ALARM


def test_romsto_greedy_is_not_the_targets_greedy_text():
    decode = code("romsto:greedy")
    target, draft = markov_pair()
    text, token = [], 0
    for _ in range(6):
        token = int(np.argmax(target.row([token])))
        text.append(token)
    texts = [decode(target, draft, [0], 6, None, np.random.default_rng(seed)) for seed in range(30)]
    assert any(found != text for found in texts)


def test_gpt_fast_raises():
    decode = code("gpt_fast:verify")
    with pytest.raises(RuntimeError, match="same number of dimensions"):
        decode(*markov_pair(), [0], 5, None, np.random.default_rng(1))


@pytest.mark.parametrize("name", ["layerskip", "romsto"])
def test_texts_of_one_token_divide_by_zero(name):
    with pytest.raises(ZeroDivisionError):
        code(f"{name}:verify")(*markov_pair(), [0], 1, None, np.random.default_rng(1))


def test_feifeibear_cannot_sample_token_0():
    decode, models = code("feifeibear:unshifted"), markov_pair()
    raised = 0
    for seed in range(20):
        try:
            decode(*models, [0], 5, None, np.random.default_rng(seed))
        except RuntimeError:
            raised += 1
    assert raised
