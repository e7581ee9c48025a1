"""Name the argument of a public function that is of another type than its annotation."""

import inspect
import os
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, wraps
from numbers import Rational, Real
from operator import index
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from specsim.core._checks import check_unmasked
from specsim.core._files import read_table
from specsim.core._registry import suggestion

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
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name}: rows differ in length; expected an array") from None
    except MemoryError:
        raise
    except Exception as error:  # an object may raise anything
        raise TypeError(f"{name}: expected an array, got {_said_of(value)} ({error})") from None
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
