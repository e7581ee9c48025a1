"""Types that several packages share, checks of values, and the argument that is of another type.

Errors begin with the name of the argument."""

import difflib
import inspect
import math
import os
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from numbers import Rational, Real
from operator import index
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.core._files import read_table
from specsim.core._numbers import whole

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Token ids as arrays hold them.
TokenArray = NDArray[np.int32]

#: A pmf over the vocabulary in plain Python, of Fractions or floats: what the law of a rule reads.
Row = Sequence[Any]
Rows = Sequence[Row]
#: The probability of stopping at each node, and the pmf of the token after it; of a law at one node, that of
#: accepting each child, and the pmf of the token that follows if none is.
StepLaw = tuple[list[Any], list[Any]]

#: Token ids, in the order of the text.
Tokens = tuple[int, ...]

#: The largest vocabulary: token ids are stored as int32.
MOST_TOKENS = 2**31 - 1


def dtype_of(name: str) -> np.dtype[Any]:
    """The NumPy dtype of that name, bfloat16 included."""
    if name == "bfloat16":  # NumPy has no such type of its own
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


#: Steps, positions and tokens are numbered in 64 bits.
MOST = 2**63 - 1


@contextmanager
def said_of(what: object) -> Iterator[None]:
    """Within this, what is wrong with a value is said of `what`."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None


def check_count(name: str, value: Any, least: int = 1, most: int = MOST) -> int:
    """`value` as an int. Raises TypeError unless it is an integer (not a bool), ValueError out of bounds."""
    try:
        if isinstance(value, bool):
            raise TypeError
        found = index(value)
    except Exception:  # an object may raise anything
        raise TypeError(f"{name}: expected an int, got {type(value).__name__}") from None
    if not least <= found <= most:
        largest = "2^63 - 1" if most == MOST else f"{most:,}"
        bound = f"at least {least}" if found < least else f"at most {largest}"
        raise ValueError(f"{name}: {shown_number(found)} is not {bound}")
    return found


def count_of(name: str, value: int | str) -> int:
    """`check_count`, of a text such as "10M" too."""
    if isinstance(value, str):
        try:
            value = whole(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}; write 1000000, 1e6 or 1M") from None
    return check_count(name, value)


def shown_number(value: Any) -> Any:
    """`value` as messages have it: Python does not print numbers of thousands of digits."""
    return "a number of very many digits" if isinstance(value, int) and abs(value) >= 2**128 else value


def check_counts(**values: Any) -> None:
    """`check_count` for several arguments, each at least 1."""
    for name, value in values.items():
        check_count(name, value)


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Raise ValueError unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name}: {value!r} is unknown; give one of {', '.join(choices)}")


def check_between(name: str, value: Any, low: float, high: float, what: str, ends: str = "[]") -> None:
    """Raise ValueError unless `value` is finite and in the interval with these `ends`, such as "(]"."""
    if isinstance(value, np.ndarray | np.generic) and not value.ndim:  # float16 would overflow
        value = value.item()
    if isinstance(value, bool) or not issubclass(type(value), Real):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}; give a {what}")
    excluded = (ends[0] == "(" and value == low) or (ends[1] == ")" and value == high)
    if excluded or not (low <= value <= high and math.isfinite(value)):
        last = f"{high:g}{ends[1]}" if math.isfinite(high) else "∞)"
        allowed = f"{ends[0]}{low:g}, {last}"
        raise ValueError(f"{name}: {shown_number(value)} is outside {allowed}; give a {what}")


def check_unmasked(name: str, value: Any) -> None:
    """Raise ValueError for masked entries of an array, or of arrays in a list, which NumPy would use."""
    for array in value if isinstance(value, list | tuple) else (value,):
        if type(array) is np.ndarray or not isinstance(array, np.ndarray):
            continue
        if masked := int(np.sum(getattr(array, "mask", False))):
            raise ValueError(f"{name}: {masked:,} of {array.size:,} entries are masked; give a plain array")


def array_of(name: str, value: Any, parts: str = "rows", wanted: str = "an array") -> NDArray[Any]:
    """`value` as an array. Raises ValueError for `parts` of different lengths, else TypeError."""
    check_unmasked(name, value)
    try:
        return np.asarray(value)
    except MemoryError:
        raise
    except ValueError as error:
        raise ValueError(f"{name}: {parts} differ in length; expected {wanted}") from error
    except Exception as error:  # an object may raise anything
        raise TypeError(f"{name}: expected an array, got {_said_of(value)} ({error})") from error


#: The most seconds of a time limit, three years: clocks and sockets take no arbitrary number.
MOST_SECONDS = 1e8


def check_seconds(name: str, value: Any) -> None:
    """Raise ValueError or TypeError unless `value` is a time limit above 0 of at most `MOST_SECONDS`."""
    check_between(name, value, 0.0, MOST_SECONDS, "number of seconds", "(]")


def suggestion(name: str, known: Iterable[str], title: str | None = None) -> str:
    """The end of a sentence: the one of `known` that `name` resembles, else all of them, after a `title`.

    >>> "unknown rule 'standart'" + suggestion("standart", ["block", "standard"], "Rules")
    "unknown rule 'standart'; did you mean 'standard'?"
    """
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1) if isinstance(name, str) else []
    if near:
        return f"; did you mean {near[0]!r}?"
    return f". {title}: {', '.join(known)}" if title else "."


def check_known(kind: str, name: str, known: Sequence[str]) -> None:
    """Raise ValueError, with the nearest name, all or their list, unless `name` is one of the `known`."""
    if name not in known:
        title = "There are" if len(known) <= 40 else None  # of more names their list is more readable
        meant = suggestion(name, known, title).removesuffix(".") or f"; 'specsim list {kind}s' lists them all"
        raise ValueError(f"unknown {kind} {name!r}{meant}")


# The argument of a public function that is of another type than its annotation.

F = TypeVar("F", bound=Callable[..., Any])

#: Digits of the largest integers that a float is as large as.
LARGEST_DIGITS = 308
LARGEST = 10**LARGEST_DIGITS
#: How errors call types, by their names.
TYPES: dict[str, str] = read_table("kinds")["types"]


def checked(function: F) -> F:
    """If a call of `function` fails, check the types of its arguments; of a class, its constructor's.

    Calls that succeed cost nothing but a look for masked arrays and NumPy's integers; errors that name an
    argument pass. Raises TypeError, naming the argument; ValueError for rows of different lengths, masked
    entries, and paths that cannot be. Other annotations are not checked."""
    if isinstance(function, type):
        function.__init__ = checked(function.__init__)  # type: ignore[misc]
        return function
    later = inspect.isgeneratorfunction(inspect.unwrap(function))  # it would fail outside the call

    @wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        if later:
            check_arguments(function, arguments, named)
        arguments = tuple(_plain(value) for value in arguments)
        named = {name: _plain(value) for name, value in named.items()}
        for value in (*arguments, *named.values()):
            if isinstance(value, np.ndarray) and type(value) is not np.ndarray:  # masked, perhaps
                positions = zip(_read(function)[0].parameters, arguments, strict=False)
                for name, given in (*positions, *named.items()):
                    check_unmasked(name, given)
        try:
            return function(*arguments, **named)
        except (OSError, MemoryError):
            raise
        except Exception as error:  # an argument may raise anything
            first = re.match(r"\w+(?=[:,\[])", str(error))
            if first is None or first[0] not in _read(function)[0].parameters:  # it names no argument
                check_arguments(function, arguments, named, error)
            raise

    return typing.cast(F, called)


def _plain(value: Any) -> Any:
    """`value`, of NumPy's integers the same in Python, which do not overflow."""
    return value.item() if isinstance(value, np.integer) else value


def check_arguments(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    named: dict[str, Any],
    reason: Exception | None = None,
) -> None:
    """Raise TypeError or ValueError, naming the argument, for one of another type than its annotation."""
    signature, hints = _read(function)
    try:
        bound = signature.bind(*arguments, **named)
    except TypeError as error:
        unknown = next((name for name in named if name not in signature.parameters), "")
        meant = suggestion({"seed": "rng", "names": "rules"}.get(unknown, unknown), signature.parameters)
        raise TypeError(f"{function.__qualname__}: {error}{meant.removesuffix('.')}") from None
    for name, value in bound.arguments.items():
        if (hint := hints.get(name)) is not None and value is not signature.parameters[name].default:
            try:
                _check(name, value, hint)
            except Exception as error:
                if isinstance(error, TypeError | ValueError) and str(error).startswith(name):
                    raise error from reason
                raise TypeError(f"{name}: {_said_of(value)} cannot be used ({error!r})") from reason


def _check(name: str, value: Any, hint: Any) -> None:
    if type(value) is int and abs(value) > LARGEST:
        raise ValueError(f"{name}: an integer of more than {LARGEST_DIGITS} digits; give a smaller one")
    members = _members(hint)
    if any(_fits(value, one) for one in members):
        if isinstance(value, str | os.PathLike) and any(one is os.PathLike for one in members):
            _check_path(name, os.fspath(value))
        return
    if ArrayLike in members:
        _check_array(name, value)
        return
    if int in members and isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}: expected an int, got the bool {value}")
    raise TypeError(f"{name}: expected {' or '.join(map(_said, members))}, got {_said_of(value)}")


def _check_path(name: str, text: Any) -> None:
    try:
        os.fsencode(text)
    except UnicodeError:
        text += "\0"  # no file has such a name
    if not text or "\0" in text:
        raise ValueError(f"{name}: {text!r} is not the name of a file or folder; give another path")


def _check_array(name: str, value: Any) -> None:
    array = array_of(name, value)
    if array.dtype.kind in "biuf" or array.dtype.name == "bfloat16" or not array.size:
        return
    if array.dtype.kind == "O" and all(isinstance(one, Rational) for one in array.flat):
        if all(abs(one) <= LARGEST for one in array.flat):
            return
        raise ValueError(f"{name}: an integer of more than {LARGEST_DIGITS} digits; give a smaller one")
    raise TypeError(f"{name}: expected an array of numbers, got {_said_of(value)} of {array.dtype}")


@cache
def _read(function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Any]]:
    """The signature of a function, and the annotations that can be checked."""
    signature = inspect.signature(function)
    hints = {}
    for name, parameter in signature.parameters.items():
        hint = parameter.annotation
        if isinstance(hint, str):
            try:
                hint = eval(hint, inspect.unwrap(function).__globals__)
            except Exception:  # names that only type checkers import
                continue
        many = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if hint is not inspect.Parameter.empty and not many and all(map(_is_known, _members(hint))):
            hints[name] = hint
    return signature, hints


@cache
def _members(hint: Any) -> tuple[Any, ...]:
    if hint == ArrayLike or typing.get_origin(hint) is np.ndarray:
        return (ArrayLike,)
    if hint is None:
        return (types.NoneType,)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        given = typing.get_args(hint)
        if {*typing.get_args(ArrayLike)} <= {*given}:  # a union within a union is not kept as one
            others = tuple(one for one in given if one not in typing.get_args(ArrayLike))
            return (*(member for one in others for member in _members(one)), ArrayLike)
        return tuple(member for one in given for member in _members(one))
    if typing.get_origin(hint) is os.PathLike or (isinstance(hint, type) and issubclass(hint, os.PathLike)):
        return (os.PathLike,)
    return (hint,)


def _is_known(hint: Any) -> bool:
    if hint in (Any, object):
        return False
    return hint == ArrayLike or isinstance(hint, type) or isinstance(typing.get_origin(hint), type)


def _fits(value: Any, hint: Any) -> bool:
    origin = typing.get_origin(hint) or hint
    if hint == ArrayLike:
        return False  # it is converted
    if origin is int:
        return _whole(value) and not isinstance(value, bool | np.bool_)
    if origin is float:
        number = isinstance(value, Real) and not isinstance(value, bool)
        return number or (isinstance(value, np.ndarray) and not value.ndim and value.dtype.kind in "iuf")
    if origin is bool:
        return isinstance(value, bool | np.bool_)
    if origin in (Sequence, Iterable, Collection, list, tuple):
        return _is_sequence(value, hint)
    if origin is Callable or origin is types.FunctionType:
        return callable(value) and not isinstance(value, type)
    if getattr(origin, "_is_protocol", False):
        wanted = [name for name in vars(origin) if not name.startswith("_")]
        methods = [name for name in wanted if callable(getattr(origin, name))]
        has = all(hasattr(value, name) for name in wanted)
        return has and all(callable(getattr(value, name)) for name in methods)
    if origin is os.PathLike and isinstance(value, os.PathLike):
        os.fspath(value)  # an error of its own names the argument
    return isinstance(value, origin)


def _whole(value: Any) -> bool:
    if isinstance(value, np.ndarray) and (value.ndim or value.dtype.kind not in "iu"):
        return False
    if isinstance(value, type) or not hasattr(value, "__index__"):
        return False
    index(value)  # an error of its own names the argument
    return True


def _is_sequence(value: Any, hint: Any) -> bool:
    """Whether a value can be gone through, and has integers where they are wanted."""
    items = typing.get_args(hint)[:1]
    if isinstance(value, str | bytes | Mapping | type) or not hasattr(value, "__iter__"):
        return isinstance(value, bytes) and items == (int,)
    iter(value)  # an error of its own names the argument
    if (typing.get_origin(hint) or hint) is not Iterable and not hasattr(value, "__len__"):
        return False  # a generator, which is used up by now
    if isinstance(value, np.ndarray) and not value.ndim:
        return False
    if len(items) == 1 and _is_known(items[0]) and hasattr(value, "__len__"):
        some = value[:1] if isinstance(value, range) else value  # all of a range are like the first
        members = _members(items[0])
        return all(any(member == ArrayLike or _fits(one, member) for member in members) for one in some)
    return True


def _said(hint: Any) -> str:
    origin = typing.get_origin(hint) or hint
    name = getattr(origin, "__name__", str(origin))
    if origin in (Sequence, Iterable, tuple) and (items := typing.get_args(hint)[:1]) and _is_known(items[0]):
        return f"{TYPES[name]}, each item {_said(items[0])}"
    return "an array" if hint == ArrayLike else TYPES.get(name, name)


def _said_of(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
