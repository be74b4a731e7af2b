"""How kernels are made: the decorator, bytes as arrays, and what numba has no words for.

Loads and copies are single machine instructions.  They look at no bounds: the kernel has to.  Where
numba is told not to compile, functions that do take their place (`checked_access`).
"""

import sys
from collections.abc import Callable
from typing import Any, Final, Literal, ParamSpec, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from numba import carray  # type: ignore[attr-defined]
from numba.core import cgutils, types
from numba.extending import intrinsic

from flintmq.kernels.cache import KernelCache
from flintmq.kernels.cache_directory import cache_directory
from flintmq.kernels.checked_access import (
    checked_bytes_at,
    checked_copy,
    checked_loader,
    checked_storer,
    count_trailing_zeros,
)

Bytes = npt.NDArray[np.uint8]
Target = npt.NDArray[np.uint8]
"""Bytes that a kernel writes to."""
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

_IS_CHECKED: Final = bool(getattr(numba.config, "DISABLE_JIT", 0))
_P = ParamSpec("_P")
_R = TypeVar("_R")


def kernel(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a function at its first call; other threads go on while it runs."""
    compiled = numba.njit(nogil=True)(function)
    if cache_directory() is not None and not _IS_CHECKED:
        compiled._cache = KernelCache(function)  # type: ignore[attr-defined, no-untyped-call]
    return cast(Callable[_P, _R], compiled)


def inlined(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a small function a part of each kernel that calls it.

    A call of a kernel by another one counts references to each array that it is given, which
    takes some 20 nanoseconds: too long for what is called for each record or each property.
    """
    return cast(Callable[_P, _R], numba.njit(nogil=True, inline="always")(function))


def as_bytes(view: bytes | bytearray | memoryview) -> Bytes:
    """Return ``view`` as an array that cannot be written to.

    A kernel is compiled for each kind of array it meets, hence one kind for all.
    """
    # Of bytes it is read-only by itself; to set the flag would take four times as long.
    if type(view) is not bytes:
        view = memoryview(view).toreadonly()
    return np.frombuffer(view, np.uint8)


def _loader(
    bits: int, order: Literal["big", "little"], *, is_signed: bool = True
) -> Callable[[Bytes, int], int]:
    """Return a function for kernels that loads a number from any place of an array."""
    if _IS_CHECKED:
        return checked_loader(bits, order, is_signed=is_signed)
    stored = types.Integer.from_bitwidth(bits, signed=is_signed)
    given = types.uint64 if stored is types.uint64 else types.int64

    def load(context: Any, data: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            number = context.get_value_type(stored)
            address = builder.gep(array.data, [arguments[1]])
            value = builder.load(builder.bitcast(address, number.as_pointer()))
            value.align = 1
            if order != sys.byteorder and bits > 8:
                value = builder.bswap(value)
            return context.cast(builder, value, stored, given)

        return given(data, types.int64), generate

    return cast(Callable[[Bytes, int], int], intrinsic(load))


load_byte: Final = _loader(8, "big", is_signed=False)
"""The byte at an index, as a number that can be counted with: numba mixes no unsigned ones."""

load_short: Final = _loader(16, "big")
"""The big-endian number of two bytes at an index, signed."""

load_int: Final = _loader(32, "big")
"""The big-endian number of four bytes at an index, signed."""

load_long: Final = _loader(64, "big")
"""The big-endian number of eight bytes at an index, signed."""

load_word: Final = _loader(64, "little", is_signed=False)
"""The little-endian number of eight bytes at an index, unsigned."""


def _storer(bits: int) -> Callable[[Bytes, int, int], None]:
    """Return a function for kernels that stores a big-endian number at any index of an array."""
    if _IS_CHECKED:
        return checked_storer(bits)
    stored = types.Integer.from_bitwidth(bits)

    def store(context: Any, target: Any, at: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            number = context.cast(builder, arguments[2], types.int64, stored)
            if sys.byteorder == "little":
                number = builder.bswap(number)
            address = builder.gep(array.data, [arguments[1]])
            done = builder.store(number, builder.bitcast(address, number.type.as_pointer()))
            done.align = 1
            return context.get_dummy_value()

        return types.void(target, types.int64, types.int64), generate

    return cast(Callable[[Bytes, int, int], None], intrinsic(store))


put_short: Final = _storer(16)
"""Store the lower two bytes of a number at an index, big-endian."""

put_int: Final = _storer(32)
"""Store the lower four bytes of a number at an index, big-endian."""

put_long: Final = _storer(64)
"""Store a number of eight bytes at an index, big-endian."""


def _copy(context: Any, target: Any, to: Any, source: Any, start: Any, size: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, to, source, start, size = arguments
        into = context.make_array(signature.args[0])(context, builder, target)
        out_of = context.make_array(signature.args[2])(context, builder, source)
        memcpy: Callable[..., None] = cgutils.raw_memcpy
        memcpy(builder, builder.gep(into.data, [to]), builder.gep(out_of.data, [start]), size, 1)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


copy_bytes: Final = cast(
    Callable[[Bytes, int, Bytes, int, int], None],
    checked_copy if _IS_CHECKED else intrinsic(_copy),
)
"""Copy to an array and an index in it, from an array and an index in it, so many bytes."""


def _pointer(context: Any, address: Any) -> Any:
    pointer: Any = types.CPointer(types.uint8)  # type: ignore[no-untyped-call]

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(pointer))

    return pointer(types.int64), generate


_as_pointer: Final = cast(Callable[[int], Any], intrinsic(_pointer))


@inlined
def _bytes_at(address: int, size: int) -> Bytes:
    array: Bytes = carray(_as_pointer(address), (size,))
    return array


bytes_at: Final = checked_bytes_at if _IS_CHECKED else _bytes_at
"""So many bytes at an address of this process, as an array; only to be read from.

It is for tables of places in many files: a kernel can be given only so many arrays as it has
parameters.  Whoever fills such a table keeps the files mapped while the kernel runs.
"""


def address_of(view: memoryview) -> int:
    """Return where the bytes of a view are; the address is good while their map is kept."""
    address: int = np.frombuffer(view.toreadonly(), np.uint8).__array_interface__["data"][0]
    return address


def _trailing_zeros(context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, False))

    return types.int64(types.uint64), generate


trailing_zeros: Final = cast(
    Callable[[np.uint64], int],
    count_trailing_zeros if _IS_CHECKED else intrinsic(_trailing_zeros),
)
"""How many zero bits a number has at its lower end; 64 if it is zero."""
