"""The table of rules that comes with specsim is what is computed."""

import pytest

import specsim
from specsim.simulation._comparison import load_bundled


def test_the_shipped_table_is_what_the_seed_gives(full):
    """Rules of every kind again, or every third too, from the recorded seed; only sums of TV may round."""
    stored = load_bundled()
    names = [entry.name for entry in stored]
    assert names == [name for name in specsim.rules.names() if name in names]  # a rule just added comes later
    assert len(names) > 50
    assert [entry.rule for entry in stored] == [str(specsim.rules.get(name)) for name in names]
    some = ("standard", "recursive_rejection", "lenience", "block_first_failure")
    kept = [entry for i, entry in enumerate(stored) if entry.name in some or (full and i % 3 == 0)]
    assert {entry.group for entry in kept} == set(specsim.rules.GROUPS)
    again = specsim.compare(
        *specsim.default_pair(),
        rules=[entry.name for entry in kept],
        gamma=stored.gamma,
        steps=stored.steps,
        rng=stored.provenance.root,
    )
    for one, other in zip(kept, again, strict=True):
        assert (one.rule, one.group, one.drafts) == (other.rule, other.group, other.drafts)
        assert one.tokens_per_step == other.tokens_per_step
        assert one.tv == (None if other.tv is None else pytest.approx(other.tv, abs=1e-12))
