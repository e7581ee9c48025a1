"""What numba knows of a `Pointer`: it has functions as arguments, and here they are nothing but an address.

A module of its own, since importing it imports numba, and since code on disk names the type."""

from typing import Any

from numba.core import cgutils, types
from numba.experimental.function_type import FunctionModel
from numba.extending import NativeValue, register_model, typeof_impl, unbox

from specsim.core._kernels import Pointer


class PointerType(types.FunctionType):
    """The type of a pointer to kernels of one signature."""


register_model(PointerType)(FunctionModel)


@typeof_impl.register(Pointer)
def typeof_pointer(value: Pointer, context: Any) -> PointerType:
    return PointerType(value.compiled[0])


@unbox(PointerType)
def unbox_pointer(kind: PointerType, value: Any, made: Any) -> NativeValue:
    pointer = cgutils.create_struct_proxy(kind)(made.context, made.builder)
    address = made.pyapi.object_getattr_string(value, "address")
    pointer.jit_addr = made.pyapi.long_as_voidptr(address)
    made.pyapi.decref(address)
    return NativeValue(pointer._getvalue())
