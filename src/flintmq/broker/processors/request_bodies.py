"""Bodies of requests that are JSON: small ones are read at once, larger ones in a thread.

A peer may send whatever a frame holds, and a parser in machine code holds the interpreter until it
is done.  So what takes longer than a slice of a turn is read by the parser that is written in
Python, in a thread that gives way to the loop, and one such body at a time.
"""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from flintmq.format.wire.bodies.dialect import check_request_size, loads_giving_way

if TYPE_CHECKING:
    from collections.abc import Callable

BODY_AT_ONCE_MAX: Final = 64 << 10
"""Bytes of a body that is read at once: a heartbeat of some hundred groups."""

_T = TypeVar("_T", covariant=True)
_R = TypeVar("_R")


class DecodesBody(Protocol[_T]):
    """Makes a value of a body, with the parser that it is given."""

    def __call__(self, body: bytes, *, loads: Callable[[bytes], Any]) -> _T:
        """Return the value; BodyError if the body has none."""
        ...


class LargeBodies:
    """Reads the bodies of requests that are too large to be read at once."""

    def __init__(self) -> None:
        self._reading = asyncio.Lock()

    async def read(self, body: bytes, decode: DecodesBody[_R]) -> _R:
        """Return what a body says, read in a thread; BodyError if it is larger than any may be."""
        check_request_size(body)
        async with self._reading:
            reading = asyncio.get_running_loop().run_in_executor(
                None, functools.partial(decode, body, loads=loads_giving_way)
            )
            try:
                return await asyncio.shield(reading)
            except asyncio.CancelledError:
                # The peer is gone, and the thread is not: so long no other body is read.
                await asyncio.wait([reading])
                reading.exception()  # Nobody wants to know.
                raise
