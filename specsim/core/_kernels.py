"""The one place where functions are handed to numba.

``@kernel`` marks a function that numba compiles when it is first called, so that importing a module, and
listing the rules, costs nothing. A kernel may call other kernels. Kernels release the GIL, because they run
on a pool of threads; division follows NumPy, so that a kernel never raises in the middle of a chunk.
``fastmath`` is only for summaries: it lets the compiler reorder additions, and a decision (accept or reject)
must not depend on that. Vectors are as wide as the processor has.

``@inner_kernel`` is for kernels that are called for every step and allocate no array: they are inlined, and
references to arrays are not counted, which takes most of their time. The loops that rules share take a kernel
as an argument, a `Pointer`, and are compiled once.

Compiled code is kept on disk, under NUMBA_CACHE_DIR if that is set. A file's name is the digest of everything
the code depends on: the kernel's bytecode, its constants, the kernels that it calls, the types of its
arguments, the processor and the versions. A file is replaced in one step, so any number of processes may
share the folder. What a file holds is executed: folders and files are made for this user alone, and what
others, but root, can change is not read. Kernels written elsewhere, as in a notebook, and those made of them
are compiled in every session.

`interpreted()` runs kernels as plain Python for a while; NUMBA_DISABLE_JIT=1 does so throughout."""

import dis
import hashlib
import os
import pickle
import secrets
import stat
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, cached_property, partial, update_wrapper
from importlib import import_module
from itertools import count
from pathlib import Path
from types import BuiltinFunctionType, CodeType, ModuleType
from typing import Any

import numpy as np

from specsim.core._types import check_count

PACKAGE = Path(__file__).parents[1]

_interpreting: ContextVar[bool] = ContextVar("interpreting", default=False)


class Kernel:
    """A function compiled by numba at its first call; `plain` is the same function in Python."""

    def __init__(self, function: Callable[..., Any], *, fastmath: bool = False, inner: bool = False):
        self.plain = function
        self.made: Callable[[], Callable[..., Any]] = lambda: function  # what is compiled
        self.fastmath = fastmath
        self.inner = inner
        self.shared: tuple[Any, ...] = ()  # another kernel, and its first arguments, see `bound`
        update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        if self.shared:
            loop, *given = self.shared
            return loop(*given, *arguments)
        return self.plain(*arguments) if _interpreting.get() else self.compiled(*arguments)

    def bound(self, call: Callable[..., Any], *given: Any) -> "Kernel":
        """The kernel `call`, which calls this one with the arguments `given`, pointers and numbers, in front.

        Compiled code of this one serves all such kernels; other kernels, and devices, compile `call`."""
        made = Kernel(call)
        made.shared = self, *given
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """By name; one made by a function has cells too, and cannot be unpickled."""
        cells = tuple(cell.cell_contents for cell in self.plain.__closure__ or ())
        return _kernel_named, (self.plain.__module__, self.plain.__qualname__, *cells)

    @cached_property
    def compiled(self) -> Callable[..., Any]:
        return self._handed_over()

    def _handed_over(self, **options: Any) -> Any:
        """A function of numba's own, with these options of it."""
        import numba

        _teach_numba_about_kernels()
        for called in self.calls if self.inner else ():
            if not called.inner:  # its arrays would never be freed
                raise TypeError(
                    f"{self.plain.__qualname__}: an inner kernel calls {called.plain.__qualname__}, which is "
                    "not inner; make both of one kind"
                )
        # `_nrt` is numba's runtime, which allocates arrays and counts references; no kernel is called from C
        options |= {"_nrt": not self.inner, "forceinline": self.inner, "no_cfunc_wrapper": True}
        options |= {"nogil": True, "error_model": "numpy", "fastmath": self.fastmath}
        if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]  # set at run time
            return self.plain
        compiled: Any = numba.njit(self.made(), pipeline_class=_compiler_class(), **options)
        # for a constant of its caller it would be compiled a second time
        template_for = compiled.get_call_template
        compiled.get_call_template = lambda given, named: template_for(
            tuple(map(numba.types.unliteral, given)), named
        )
        if self.contents is not None:
            name = f"{self.plain.__module__}.{self.plain.__qualname__}"
            compiled._cache = _Entries(f"{name} {self.contents} {compiled.targetoptions}")
        return compiled

    @cached_property
    def contents(self) -> str | None:
        """A digest of this kernel and of all kernels that it calls, None if it is not kept on disk. Globals
        and cells enter by value, since numba compiles them as constants."""
        found = [self]
        try:
            described = [part._described(found) for part in found]  # grows while it is read
        except _NotDescribedError:
            return None
        return hashlib.sha256("\n".join(described).encode()).hexdigest()

    @property
    def _frozen(self) -> tuple[tuple[tuple[str, Any], ...], tuple[Any, ...]]:
        """The globals, with their names, and the cells that the function reads: constants to numba."""
        function = self.plain
        known = function.__globals__
        names = (name for name in sorted(_globals_of(function.__code__)) if name in known)
        cells = (cell.cell_contents for cell in function.__closure__ or ())
        return tuple((name, known[name]) for name in names), tuple(cells)

    @property
    def calls(self) -> "list[Kernel]":
        named, cells = self._frozen
        return [value for value in (*(value for _, value in named), *cells) if isinstance(value, Kernel)]

    def _described(self, found: "list[Kernel]") -> str:
        """This kernel as text. Kernels that it calls are appended to `found` and written as their index."""
        function = self.plain
        if not _of_the_package(function.__module__):
            raise _NotDescribedError
        parts = (function.__code__, self.made.__code__, function.__defaults__, *self._frozen)
        options = f"{self.fastmath} {self.inner}"
        return f"{function.__module__}.{function.__qualname__} {options} {_described(parts, found)}"


class Pointer:
    """A kernel as an argument of another one, which calls it with arguments of the types in `signature`."""

    def __init__(self, kernel: Kernel, signature: str):
        self.kernel = kernel
        self.signature = signature

    def __call__(self, *arguments: Any) -> Any:
        return self.kernel(*arguments)

    @cached_property
    def compiled(self) -> tuple[Any, int]:
        """Its type, for numba, and its address."""
        found = self.kernel._handed_over(no_cpython_wrapper=True)
        found.compile(self.signature)
        (made,) = found.overloads.values()
        address = made.library.get_pointer_to_function(made.fndesc.llvm_func_name)
        return _pointer_type(made.signature), address


@contextmanager
def interpreted() -> Iterator[None]:
    """Within this, kernels run as plain Python on the same numbers: quicker for one step than compiling."""
    token = _interpreting.set(True)
    try:
        with np.errstate(all="ignore"):  # as in compiled code
            yield
    finally:
        _interpreting.reset(token)


def _kernel_named(module: str, name: str, *closure: Any) -> Kernel:
    if closure:
        raise TypeError(f"{module}.{name}: a kernel made by a function cannot be unpickled")
    return getattr(import_module(module), name)


def kernel(function: Callable[..., Any]) -> Kernel:
    """Compile a function at its first call, with strict floating-point arithmetic; a decorator.

    Parameters
    ----------
    function : callable
        What numba compiles in nopython mode.

    Returns
    -------
    Kernel
        Is called like the function; its `plain` is the function itself.

    Examples
    --------
    >>> @kernel
    ... def half(x):
    ...     return x / 2
    >>> half.plain(1.0)
    0.5
    """
    return Kernel(function)


def inner_kernel(function: Callable[..., Any]) -> Kernel:
    """Compile `function`, which allocates no array, at its first call: inlined, without counting references.

    It works on arrays that it is given, returns numbers, and calls inner kernels; another raises TypeError at
    the first call. Where `function` allocates an array, as NumPy's reductions such as `weights.sum()` do too,
    numba raises a `TypingError` ("Only accept returning of array passed into the function as argument")."""
    return Kernel(function, inner=True)


#: As `kernel` and `inner_kernel`, for functions whose sums the compiler may reorder.
summary_kernel, inner_summary_kernel = (partial(Kernel, fastmath=True, inner=one) for one in (False, True))


def _fetching() -> Callable[..., Any]:  # LLVM's instruction
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba import types
    from numba.core.cgutils import get_or_insert_function, voidptr_t
    from numba.extending import intrinsic

    @intrinsic
    def prefetch(context, words, place):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, given):  # type: ignore[no-untyped-def]
            data = context.make_array(signature.args[0])(context, builder, given[0]).data
            byte, number = builder.bitcast(builder.gep(data, given[1:]), voidptr_t), ir.IntType(32)
            form = ir.FunctionType(ir.VoidType(), [voidptr_t, number, number, number])
            call = get_or_insert_function(builder.module, form, "llvm.prefetch.p0")
            builder.call(call, [byte, number(0), number(3), number(1)])  # to read, into all caches, data
            return context.get_dummy_value()

        return types.void(words, place), generate

    return lambda words, place: prefetch(words, place)  # type: ignore[call-arg]  # numba gives the first


@inner_kernel
def fetch(words: Any, place: int) -> None:
    """Bring words[place], which may be beyond the end, into the cache; in plain Python nothing."""


fetch.made = _fetching


def available_threads(threads: int | None = None) -> int:
    """`threads`, or the number of cores of this process. Raises ValueError and TypeError as `check_count`."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return check_count("threads", threads)


@cache
def _teach_numba_about_kernels() -> Any:
    """Let a kernel call another, for numba the compiled function behind it, and take pointers, whose type is
    returned: numba has functions as arguments, which are nothing but an address here."""
    from numba.core import cgutils, types
    from numba.experimental.function_type import FunctionModel
    from numba.extending import NativeValue, register_model, typeof_impl, unbox

    class PointerType(types.FunctionType):
        def __reduce__(self) -> tuple[Any, ...]:  # code on disk has the type that a process made
            return _pointer_type, (self.signature,)

    register_model(PointerType)(FunctionModel)

    @typeof_impl.register(Kernel)
    def typeof_kernel(value: Kernel, context: Any) -> Any:
        return types.Dispatcher(value.compiled)

    @typeof_impl.register(Pointer)
    def typeof_pointer(value: Pointer, context: Any) -> Any:
        return value.compiled[0]

    @unbox(PointerType)
    def unbox_pointer(kind: Any, value: Any, made: Any) -> Any:
        pointer = cgutils.create_struct_proxy(kind)(made.context, made.builder)
        compiled = made.pyapi.object_getattr_string(value, "compiled")
        pointer.jit_addr = made.pyapi.long_as_voidptr(made.pyapi.tuple_getitem(compiled, 1))
        made.pyapi.decref(compiled)
        return NativeValue(pointer._getvalue())

    return PointerType


@cache
def _compiler_class() -> Any:
    """numba's compiler, which takes vectors as wide as the processor has: on some, LLVM would take half."""
    from numba.core import compiler, compiler_machinery, lowering, typed_passes

    class Lower(lowering.Lower):
        def setup_function(self, descriptor: Any) -> None:
            super().setup_function(descriptor)
            set.add(self.function.attributes, WIDE)  # llvmlite's own `add` refuses what it does not know

    @compiler_machinery.register_pass(mutates_CFG=True, analysis_only=False)
    class Lowering(typed_passes.NativeLowering):
        lowering_class = Lower

    class Compiler(compiler.Compiler):
        def define_pipelines(self) -> Any:
            (made,) = super().define_pipelines()
            own = {typed_passes.NativeLowering: Lowering}
            made.passes = [(own.get(step, step), name) for step, name in made.passes]
            made.finalize()
            return [made]

    return Compiler


def _pointer_type(signature: Any) -> Any:
    return _teach_numba_about_kernels()(signature)


class _NotDescribedError(Exception):
    """A kernel refers to a value, or takes an argument, that has no description here."""


def _described(value: Any, found: list[Kernel]) -> str:
    """A value that numba compiles as a constant, as text; different values have different texts."""
    if isinstance(value, Kernel):
        if value not in found:
            found.append(value)
        return f"kernel {found.index(value)}"
    if value is None or type(value) in (bool, int, float, str, bytes):
        return repr(value)
    if type(value) is tuple:
        return f"({', '.join(_described(item, found) for item in value)})"
    if type(value) is slice:
        return f"slice {_described((value.start, value.stop, value.step), found)}"
    if isinstance(value, np.generic | np.ndarray) and not value.dtype.hasobject:
        strides = value.strides if isinstance(value, np.ndarray) else ()
        return f"{value.dtype.descr} {value.shape} {strides} {value.tobytes().hex()}"
    if isinstance(value, CodeType):
        return _described(tuple(getattr(value, name) for name in CODE), found)
    # what other packages define is identified by name; their versions are in the key
    if isinstance(value, ModuleType) and not _of_the_package(value.__name__):
        return value.__name__
    if isinstance(value, type | BuiltinFunctionType) and not _of_the_package(value.__module__):
        return f"{value.__module__}.{value.__qualname__}"
    raise _NotDescribedError


#: The parts of a code object that decide what it does, without file and line.
CODE = ["co_code", "co_consts", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_flags"]
CODE += ["co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_exceptiontable"]


def _globals_of(code: CodeType) -> set[str]:
    """The names that a function looks up among its globals, also in functions within it."""
    inner = (_globals_of(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    own = (step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL")
    return set(own).union(*inner)


def _of_the_package(module: str) -> bool:
    return module.partition(".")[0] == PACKAGE.name


class _Entries:
    """The cache that numba has for a dispatcher: the code of one kernel, a file for each signature with a
    digest, the key and the pickled code. Without a file that is as expected it is compiled again."""

    def __init__(self, kernel: str):
        self.kernel = kernel
        self.folder = _folder()
        self.cache_path = str(self.folder or "")  # where numba's own statistics look for it

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        from numba.core.bytecode import FunctionIdentity
        from numba.core.compiler import CompileResult

        target_context.refresh()
        key = self._key(signature, target_context.codegen())
        if key and self.folder is not None:
            with suppress(Exception):  # unpickling a damaged file can raise anything
                path = self._path(key)
                content = _read(path)
                digest, rest = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
                if rest.startswith(key) and hashlib.sha256(rest).digest() == digest:
                    loaded = CompileResult._rebuild(target_context, *pickle.loads(rest[len(key) :]))
                    with suppress(OSError):
                        os.utime(path)  # for _remove_unused
                    return loaded
        # The symbols of a function contain a number, which numba counts from 1 in each process. Two closures
        # of one factory, compiled by two processes, would get the same symbols; a kernel that calls both
        # would link only one.
        FunctionIdentity._unique_ids = count(secrets.randbits(62))
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        from numba.core.serialize import dumps

        key = self._key(signature, compiled.codegen)
        # dynamic globals are addresses of this process
        if not key or self.folder is None or compiled.library.has_dynamic_globals:
            return
        rest = key + dumps(compiled._reduce())
        path = self._path(key)
        temporary = path.with_name(f"{path.name}-{secrets.token_hex(8)}")
        with suppress(OSError):
            try:
                _made(self.folder)  # it may have been removed
                _remove_unused(self.folder)
                temporary.touch(mode=0o600, exist_ok=False)
                temporary.write_bytes(hashlib.sha256(rest).digest() + rest)
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)

    def _key(self, signature: Any, codegen: Any) -> bytes:
        """Everything the code for these arguments depends on; empty for a type that cannot be described."""
        import llvmlite
        import numba

        arguments, result = numba.core.sigutils.normalize_signature(signature)
        try:
            types = [_type_described(argument) for argument in arguments]
        except _NotDescribedError:
            return b""
        settings = [(name, getattr(numba.config, name)) for name in SETTINGS]
        versions = sys.version, numba.__version__, llvmlite.__version__, np.__version__
        parts = self.kernel, WIDE, types, result, codegen.magic_tuple(), settings, versions
        return "\n".join(map(str, parts)).encode() + b"\0"

    def _path(self, key: bytes) -> Path:
        assert self.folder is not None
        return self.folder / f"{hashlib.sha256(key).hexdigest()}.kernel"


DIGEST_BYTES = 32

#: The attribute of functions that asks LLVM for wide vectors.
WIDE = '"prefer-vector-width"="512"'

#: numba's settings that change the code.
SETTINGS = ["BOUNDSCHECK", "DEBUGINFO_DEFAULT", "LOOP_VECTORIZE", "OPT", "SLP_VECTORIZE", "USING_SVML"]

#: Entries not loaded for this many seconds are removed.
UNUSED = 30 * 24 * 3600


def kept_mark(what: str) -> Path | None:
    """The empty file which says that the kernels of `what` are on disk; None where nothing is kept."""
    import numba
    from llvmlite.binding import get_host_cpu_name  # type: ignore[import-untyped]

    folder = None if numba.config.DISABLE_JIT else _folder()  # type: ignore[attr-defined]  # set at run time
    known = f"{what} {sources_digest()} {get_host_cpu_name()} {numba.__version__} {sys.version}"
    return folder and folder / f"{hashlib.sha256(known.encode()).hexdigest()}.kernels"


def _type_described(argument: Any) -> str:
    """A numba type as text; different types have different texts."""
    from numba.core import types

    if isinstance(argument, types.BaseTuple):
        # numba's own name of a named tuple leaves out the fields
        made = getattr(argument, "instance_class", tuple)
        items = ", ".join(_type_described(item) for item in argument)  # type: ignore[attr-defined]
        return f"{made.__module__}.{made.__qualname__}{getattr(made, '_fields', '')}({items})"
    plain = argument.dtype if isinstance(argument, types.Array) else argument
    if isinstance(argument, types.FunctionType):
        # how it finds the address of a pointer
        return f"{argument} {hashlib.sha256(Path(__file__).read_bytes()).hexdigest()}"
    if isinstance(plain, types.Number | types.Boolean):
        return str(argument)
    raise _NotDescribedError


def _folder() -> Path | None:
    """Where compiled code is kept: NUMBA_CACHE_DIR, else the best of `_places` that others cannot write."""
    from numba import config

    if chosen := config.CACHE_DIR:  # type: ignore[attr-defined]  # set at run time
        folder = _made(Path(chosen) / "kernels")
        if folder is not None and (place := _changed_by_others(folder)) is not None:
            _tell_of(place)
            return None
        return folder
    folders = filter(None, map(_made, _places()))
    return next((one for one in folders if os.access(one, os.W_OK) and not _changed_by_others(one)), None)


def _places() -> Iterator[Path]:
    """Where compiled code is kept without NUMBA_CACHE_DIR, the best first."""
    user = _user()
    if os.access(PACKAGE, os.W_OK) and (user is None or PACKAGE.stat().st_uid in (user, 0)):
        yield PACKAGE / "__pycache__" / "kernels"
    with suppress(RuntimeError):  # a user without a home, as in some containers
        yield Path.home() / ".cache" / "specsim" / "kernels"
    own = Path(tempfile.gettempdir()) / ("specsim" if user is None else f"specsim-{user}")
    if not own.is_symlink():
        yield own / "kernels"


def _made(folder: Path) -> Path | None:
    """`folder`, made with those above it for this user alone if new; None if it cannot be made."""
    try:
        if not folder.parent.exists() and _made(folder.parent) is None:
            return None
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return None
    return folder


def _changed_by_others(folder: Path) -> Path | None:
    """`folder`, or one above it, where somebody else but root can put files, or None. A group may write above
    `folder`, as many users have one of their own."""
    if _user() is None:
        return None
    whole = folder.resolve()
    for depth, place in enumerate((whole, *whole.parents)):
        try:
            found = place.stat()
        except OSError:  # it was just removed
            return place
        of_another = depth < 2 and found.st_uid not in (_user(), 0)
        open_to_all = found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
        if of_another or open_to_all or (depth == 0 and found.st_mode & 0o022):
            return place
    return folder if folder.is_symlink() else None


def _user() -> int | None:
    """The number of this user, None on systems without."""
    return os.getuid() if hasattr(os, "getuid") else None


@cache
def _tell_of(place: Path) -> None:
    """Warn of a folder in NUMBA_CACHE_DIR that others can change. Once in a process."""
    warnings.warn(
        f"NUMBA_CACHE_DIR: kernels are compiled without a cache, since other users can change {place}, and a "
        "cache is executed; name a folder that only you can write",
        RuntimeWarning,
        stacklevel=2,
    )


def _read(path: Path) -> bytes:
    """The content of an entry. Raises PermissionError where somebody else but root can have written it."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | NOT_A_LINK)) as file:
        found = os.fstat(file.fileno())
        if _user() is not None and (found.st_uid not in (_user(), 0) or found.st_mode & 0o022):
            raise PermissionError(f"{path}: other users can change it")
        return file.read()


#: Opening a symbolic link fails, on systems that have them.
NOT_A_LINK = getattr(os, "O_NOFOLLOW", 0)


@cache
def _remove_unused(folder: Path) -> None:
    """Remove what no process has loaded for long, and what killed processes left. Once in a process."""
    for path in folder.glob("*.kernel*"):
        with suppress(OSError):  # another process may have been quicker
            if time.time() - path.stat().st_mtime > UNUSED:
                path.unlink()


@cache
def sources_digest() -> str:
    """Of every Python file and every table of the package, in 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for path in sorted((*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.toml"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
