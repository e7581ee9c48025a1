"""What two audits must have in common if the same steps were counted."""


def check_same(found, expected):
    """Their cases have the same steps, findings and counts."""
    assert found.verdict == expected.verdict
    assert [case.case for case in found.cases] == [case.case for case in expected.cases]
    for one, other in zip(found.cases, expected.cases, strict=True):
        assert (one.steps, one.findings, one.broken) == (other.steps, other.findings, other.broken)
        assert one.counts.keys() == other.counts.keys()
        for name, counts in one.counts.items():
            assert (counts == other.counts[name]).all(), (one.case, name)
