"""Arrays of the library that a user's function declares, on its device, and the check of what it returns.

Whole arrays are converted, on the CPU without a copy. Rows of a bank are gathered by the library itself,
where the bank is, so that a device is sent the places of rows instead of rows."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.adapters._contract import BrokenVerifier, Declared, NotADraftPath
from specsim.auditing._cases.battery import DecoderCase
from specsim.auditing._verifier.origin import LONGEST
from specsim.core._json import described
from specsim.core._kernels import kernel
from specsim.core._types import Ints, TokenArray, check_unmasked

#: Bytes up to which NumPy gathers rows of JAX: to copy these is faster than XLA's compiling for each shape.
GATHERED_BY_NUMPY = 2**25


@dataclass(frozen=True)
class Device:
    """A device as a library describes it: its name, and its free bytes, None if they are not known."""

    name: str
    free: int | None = None

    @classmethod
    def told(cls, said: Any) -> "Device":
        """From what a child process says. Raises TypeError or KeyError if that is not one."""
        name, free = said["name"], said["free"]
        if not isinstance(name, str) or not isinstance(free, int | None):
            raise TypeError("the verifier's device is not a name and a size")
        return cls(name[:LONGEST], free)


class Library:
    """Arrays of a library on a device, `writable` or not; a verifier is handed no bank itself."""

    writable = True

    def __init__(self, device: str):
        """Find the device; where it is not there, the library raises an exception of any type."""

    def convert(self, array: NDArray[Any]) -> Any:
        """An array of the library; on the CPU it may share the memory."""
        raise NotImplementedError

    def bank(self, array: NDArray[Any]) -> Any:
        """Rows [K, V] on the device, for `take`."""
        return self.convert(array)

    def take(self, bank: Any, places: Ints) -> Any:
        """The rows of a bank at `places`, in memory of their own."""
        return bank.take(self.convert(places), axis=0)

    def copy(self, array: Any) -> Any:
        return array.copy()

    def device(self) -> Device:
        return Device("cpu")


def library_of(declared: Declared) -> Library:
    """The declared library on the declared device. Raises ValueError if either is not here."""
    libraries: dict[str, type[Library]] = {"numpy": _NumPy, "torch": _Torch, "jax": _JAX, "cupy": _CuPy}
    try:
        return libraries[declared.arrays](declared.device)
    except ImportError as error:
        raise ValueError(f"the verifier asks for {declared.arrays} arrays: {error}; install it") from error
    except Exception as error:  # of any type: torch raises AssertionError without CUDA
        said = " ".join(described(error).split())
        raise ValueError(
            f"device: {declared.arrays} cannot use {declared.device!r} here ({said}); install a build of it "
            "for this device, or leave device out, to audit on the CPU"
        ) from error


class _NumPy(Library):
    """Read-only arrays, so that a verifier that writes to them, but not behind NumPy's back, raises there."""

    def convert(self, array: NDArray[Any]) -> Any:
        view = array.view()
        view.flags.writeable = False
        return view

    def take(self, bank: Any, places: Ints) -> Any:
        return self.convert(bank.take(places, axis=0))


class _Torch(Library):
    def __init__(self, device: str):
        import torch

        self._torch, self._device = torch, torch.empty(0, device=device).device

    def convert(self, array: NDArray[Any]) -> Any:
        torch = self._torch
        if not array.flags.writeable:  # torch has no read-only tensors
            array = array.copy()
        if array.dtype.name == "bfloat16":  # NumPy has no such type of its own
            tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        else:
            tensor = torch.from_numpy(array)
        return tensor.to(self._device)

    def take(self, bank: Any, places: Ints) -> Any:
        return bank.index_select(0, self.convert(places.reshape(-1))).view(*places.shape, bank.shape[1])

    def copy(self, array: Any) -> Any:
        return array.clone()

    def device(self) -> Device:
        if self._device.type != "cuda":
            return Device(str(self._device))
        cuda = self._torch.cuda
        return Device(cuda.get_device_name(self._device), cuda.mem_get_info(self._device)[0])


class _JAX(Library):
    writable = False

    def __init__(self, device: str):
        import jax

        platform, _, number = device.partition(":")
        self._jax, self._device = jax, jax.devices(platform)[int(number or 0)]

    def convert(self, array: NDArray[Any]) -> Any:
        return self._jax.device_put(array, self._device)

    def bank(self, array: NDArray[Any]) -> Any:
        return array, self.convert(array)

    def take(self, bank: Any, places: Ints) -> Any:
        here, there = bank
        if places.size * here.shape[1] * here.itemsize <= GATHERED_BY_NUMPY:
            return self.convert(here.take(places, axis=0))
        return self._jax.numpy.take(there, places, axis=0, mode="clip")

    def device(self) -> Device:
        memory = self._device.memory_stats() or {}
        free = memory["bytes_limit"] - memory["bytes_in_use"] if "bytes_limit" in memory else None
        return Device(self._device.device_kind, free)


class _CuPy(Library):
    def __init__(self, device: str):
        import cupy

        self._cupy = cupy
        self._number = int(device.partition(":")[2] or 0)
        cupy.cuda.Device(self._number).use()
        cupy.empty(1)  # raises where there is no GPU

    def convert(self, array: NDArray[Any]) -> Any:
        return self._cupy.asarray(array)

    def device(self) -> Device:
        runtime = self._cupy.cuda.runtime
        return Device(runtime.getDeviceProperties(self._number)["name"].decode(), runtime.memGetInfo()[0])


def as_tokens(output: Any, shape: tuple[int, int]) -> NDArray[Any]:
    """`output` as an integer array [B, γ+1] of that shape."""
    with _taking("returned no array [B, γ+1]"):
        tokens = _to_numpy(output)
    if tokens.shape != shape:
        raise BrokenVerifier(f"returned shape {tokens.shape}, expected [B, γ+1] = {shape}")
    if tokens.dtype.kind not in "iu":
        raise BrokenVerifier(f"returned {tokens.dtype}, expected integer tokens")
    return tokens


def read_tokens(
    answers: Sequence[Ints], drafted: Ints, lengths: Ints | None, vocab_size: int, first: int
) -> tuple[TokenArray, Ints]:
    """Convert `answers`, arrays [n, γ+1] of B rows in all, to tokens int32 [γ+1, B] and accepted [B]. Raises
    BrokenVerifier or NotADraftPath if they break the contract; messages count steps from `first`."""
    steps, gamma = drafted.shape
    laid_out, accepted = np.empty((gamma + 1, steps), dtype=np.int32), np.empty(steps, dtype=np.int64)
    longest = np.empty(0, dtype=np.int64) if lengths is None else lengths
    done, fault, stray = 0, "", None
    for tokens in answers:
        broken, strayed = _read(tokens, drafted, longest, vocab_size, done, laid_out, accepted)
        if broken >= 0 and not fault:
            most = gamma if lengths is None else int(lengths[done + broken])
            fault = f"step {first + done + broken}{_what_is_broken(tokens[broken], most, vocab_size)}"
        if strayed >= 0 and stray is None:
            stray = done + strayed
        done += len(tokens)
    if fault:
        raise BrokenVerifier(fault)
    if stray is not None:
        position = int((laid_out[:gamma, stray] != drafted[stray]).argmax())
        raise NotADraftPath(
            f"step {first + stray}, position {position + 1}: emitted token {laid_out[position, stray]} "
            f"before the last, where {drafted[stray, position]} was drafted"
        )
    return laid_out, accepted


@kernel
def _read(tokens, drafted, longest, vocab_size, start, laid_out, accepted):  # type: ignore[no-untyped-def]
    """Fill steps `start` to start + n of laid_out[γ+1, B] and accepted[B] with tokens[n, γ+1]; returns the
    first broken row, the first off the draft, or -1."""
    broken, strayed, gamma = -1, -1, drafted.shape[1]
    for row in range(tokens.shape[0]):
        s, emitted, on_draft = start + row, 0, True
        while emitted <= gamma and 0 <= tokens[row, emitted] < vocab_size:
            laid_out[emitted, s] = tokens[row, emitted]
            on_draft &= emitted == 0 or tokens[row, emitted - 1] == drafted[s, emitted - 1]
            emitted += 1
        fine = 1 <= emitted <= (gamma if longest.size == 0 else longest[s]) + 1
        for i in range(emitted, gamma + 1):
            fine &= tokens[row, i] == -1
            laid_out[i, s] = -1
        accepted[s] = emitted - 1
        if broken < 0 and not fine:
            broken = row
        if strayed < 0 and not on_draft:
            strayed = row
    return broken, strayed


def _what_is_broken(row: Ints, longest: int, vocab_size: int) -> str:
    if (outside := (row < -1) | (row >= vocab_size)).any():
        position = int(outside.argmax())
        return f", position {position + 1}: token {row[position]} is outside [0, {vocab_size})"
    emitted = int((row >= 0).sum())
    if emitted == 0:
        return ": emitted no token"
    if (row[:emitted] < 0).any():
        return ": a token follows the padding"
    return f": emitted {emitted} tokens where only {longest} were drafted"


def as_path(output: Any, parents: Ints, vocab_size: int, step: int) -> tuple[list[int], int]:
    """(accepted nodes, token) from what a verifier of trees returned."""
    with _taking(f"step {step}: did not return a pair (path, token)"):
        nodes, token = output
        path, last = _to_numpy(nodes), _to_numpy(token)
    path = path.reshape(-1)
    if last.size != 1 or last.dtype.kind not in "iu" or (path.size and path.dtype.kind not in "iu"):
        raise BrokenVerifier(f"step {step}: path and token are not integers ({path.dtype}, {last.dtype})")
    found, at = int(last.reshape(-1)[0]), 0
    if not 0 <= found < vocab_size:
        raise BrokenVerifier(f"step {step}: token {found} is outside [0, {vocab_size})")
    for node in path.tolist():
        if not 1 <= node <= len(parents):
            raise BrokenVerifier(f"step {step}: node {node} of the path is outside [1, {len(parents)}]")
        if parents[node - 1] != at:
            raise NotADraftPath(f"step {step}: node {node} of the path is not a child of node {at} before it")
        at = node
    return path.tolist(), found


def as_sequence(output: Any, case: DecoderCase, number: int) -> TokenArray:
    """The new tokens of sequence `number` of a decoder. Raises BrokenVerifier."""
    with _taking(f"sequence {number}: returned no row of tokens"):
        tokens = np.asarray(output)
    if (broken := _what_is_wrong(tokens, case)) is not None:
        raise BrokenVerifier(f"sequence {number}{broken}")
    return tokens.astype(np.int32)


def as_texts(output: Any, requests: int, number: int) -> list[Any]:
    """The texts that a call of several requests returned, from `number` on, or BrokenVerifier."""
    with _taking(f"sequence {number}: returned no list of texts"):
        texts = list(output)
    if len(texts) != requests:
        raise BrokenVerifier(f"sequence {number}: returned {len(texts)} texts for {requests} prompts")
    return texts


def _what_is_wrong(tokens: NDArray[Any], case: DecoderCase) -> str | None:
    if tokens.ndim != 1:
        return f": returned shape {tokens.shape}, expected a single row of tokens"
    if tokens.size == 0:
        return ": returned no token"
    if tokens.dtype.kind not in "iu":
        return f": returned {tokens.dtype}, expected integer tokens"
    n, size, most, eos = tokens.size, case.target.vocab_size, case.max_new_tokens, case.eos
    text = tokens.tolist()  # of few tokens
    if min(text) < 0 or max(text) >= size:
        position = next(i for i, x in enumerate(text) if not 0 <= x < size)
        return f", position {position + 1}: token {text[position]} is outside [0, {size})"
    if n > most:
        return f": returned {n} tokens, more than max_new_tokens = {most} (do not return the prompt)"
    if eos is not None and eos in text[:-1]:
        return f", position {text.index(eos) + 2}: a token follows eos = {eos}, which ends the text"
    if n < most and (eos is None or text[-1] != eos):
        without = "" if eos is None else f" without eos = {eos}"
        return f": stopped after {n} of {most} tokens{without}"
    return None


def padded(tokens: Sequence[int] | TokenArray, width: int) -> Ints:
    row = np.full(width, -1, dtype=np.int64)
    row[: len(tokens)] = tokens
    return row


@contextmanager
def _taking(failure: str) -> Iterator[None]:
    """Raise BrokenVerifier with `failure` where what a verifier returned raises an exception of its own."""
    try:
        yield
    except Exception as error:
        raise BrokenVerifier(f"{failure} ({described(error)})") from error


def _to_numpy(value: Any) -> Any:
    """An array of torch, JAX or CuPy as a NumPy array; anything else as `numpy.asarray` takes it."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    elif hasattr(value, "__cuda_array_interface__") and hasattr(value, "get"):  # of CuPy
        value = value.get()
    check_unmasked("output", value)
    return np.asarray(value)
