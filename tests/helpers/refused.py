"""Tests of what a call refuses: arguments, and what its error says of them."""

import inspect
from functools import wraps

import pytest


def refuses(what, call, /, *given, error=ValueError, **options):
    """Make a call that must fail with an error that says `what`."""
    with pytest.raises(error, match=what):
        call(*given, **options)


def refused(*cases, error=ValueError, pattern=str, **options):
    """Make a test of a call that fails: a case has its first arguments, then what the error says.

    Between them a case may name a type of error other than `error`. `pattern` makes what is searched for of
    what a case says."""

    def decorate(call):
        signature = inspect.signature(call)
        rows = [case if isinstance(case[-2], type) else (*case[:-1], error, case[-1]) for case in cases]
        names = [*list(signature.parameters)[: len(rows[0]) - 2], "error", "said"]

        @pytest.mark.parametrize(names, rows, **options)
        @wraps(call)
        def test(error, said, **given):
            with pytest.raises(error, match=pattern(said)):
                call(**given)

        kinds = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names[-2:]]
        test.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *kinds])
        return test

    return decorate
