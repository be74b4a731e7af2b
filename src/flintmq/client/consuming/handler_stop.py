"""The stop of a consumer that one of its handlers asked for.

A handler that raises SystemExit or KeyboardInterrupt runs in a task or thread of its own, so the
exception has to be brought to the user's code.  An ``async with`` block is cancelled, and the
exception comes out at its end in place of the cancellation, as with `asyncio.TaskGroup`.
"""

from __future__ import annotations

import asyncio


class HandlerStop:
    """Whether and how a handler has stopped its consumer."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        """Set when the consumer is started: before that it cannot be closed."""
        self.closed = asyncio.Event()
        """Set when the consumer is closed, whoever has done that."""
        self._error: BaseException | None = None
        self._closing: asyncio.Task[None] | None = None
        self._block: asyncio.Task[object] | None = None
        self._is_interrupted = False

    @property
    def is_asked(self) -> bool:
        """Whether a handler has asked for the stop."""
        return self._closing is not None

    @property
    def has_error(self) -> bool:
        """Whether the user has not been told yet of an exception that stopped the consumer."""
        return self._error is not None

    def ask(self, error: BaseException | None, closing: asyncio.Task[None]) -> None:
        """Note why a task is closing the consumer, and cancel the block of the user."""
        self._error, self._closing = error, closing
        self._interrupt()

    def guard_block(self) -> None:
        """Note that the current task is in a block that a stop has to end."""
        self._block = asyncio.current_task()

    def ended(self) -> None:
        """Note that the consumer ends; one that could not be started needs no stop."""
        if self._closing is not None and not self.started.is_set():
            self._closing.cancel()

    def _interrupt(self) -> None:
        if self._error is not None and self._block is not None and not self._block.done():
            self._block.cancel()
            self._is_interrupted = True

    def leave_block(self) -> bool:
        """Let the block go; return whether it was cancelled here and by nobody else."""
        block, self._block = self._block, None
        is_interrupted, self._is_interrupted = self._is_interrupted, False
        return is_interrupted and block is not None and block.uncancel() == 0

    def raise_error(self) -> None:
        """Raise what the handler has raised to stop the consumer, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error
