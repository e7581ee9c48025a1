"""What numba knows of a `Pointer`; apart, since it imports numba, and since code on disk names the type."""

from typing import Any

from numba.core import cgutils, types
from numba.experimental.function_type import FunctionModel
from numba.extending import NativeValue, register_model, typeof_impl, unbox

from specsim.core._kernels import Pointer


class PointerType(types.FunctionType):
    """A type of functions as arguments, which are nothing but an address here."""


register_model(PointerType)(FunctionModel)


@typeof_impl.register(Pointer)
def typeof_pointer(value: Pointer, context: Any) -> PointerType:
    return PointerType(value.compiled[0])


@unbox(PointerType)
def unbox_pointer(kind: PointerType, value: Any, made: Any) -> NativeValue:
    pointer = cgutils.create_struct_proxy(kind)(made.context, made.builder)
    compiled = made.pyapi.object_getattr_string(value, "compiled")
    pointer.jit_addr = made.pyapi.long_as_voidptr(made.pyapi.tuple_getitem(compiled, 1))
    made.pyapi.decref(compiled)
    return NativeValue(pointer._getvalue())
