"""Message trace: what clients did with which message, as messages of their own.

A line is fields with 0x01 between them, ended by 0x02.  Lines are collected and sent together,
with the ids and keys of the messages that they describe, so that tools find them by a key query.
Tracing never delays or fails a send or a handler: lines that cannot be sent are dropped, and
counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flintmq.client.errors import ClientError
from flintmq.client.messaging.messages import Message
from flintmq.model.topics import TRACE_TOPIC
from flintmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from flintmq.client.closing_time import ClosingTime

logger = logging.getLogger(__name__)

WAITING_COUNT_MAX: Final = 1024
TEXT_LENGTH_MAX: Final = 118_000
AGE_MAX_MS: Final = 500
_FIELD_END: Final = "\x01"
_LINE_END: Final = "\x02"
_NULL: Final = "null"


@dataclass(frozen=True, slots=True)
class TraceLine:
    """One line, and the keys it is found by."""

    text: str
    keys: tuple[str, ...]


def trace_text(*fields: object) -> str:
    """Return the text of a line with these fields; what is missing is written as Java writes it.

    Java's tools do not find a last field that is empty, and fail.
    """
    texts = (_NULL if field in (None, "") else _text(field) for field in fields)
    return _FIELD_END.join(texts) + _LINE_END


def _text(field: object) -> str:
    return str(field).lower() if isinstance(field, bool) else str(field)


class TraceSender:
    """Collects lines and sends them in the background, many in one message."""

    def __init__(self, send: Callable[[Message], Awaitable[object]], *, topic: str) -> None:
        self._send = send
        self._topic = topic or TRACE_TOPIC
        self._lines: deque[TraceLine] = deque()
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.dropped_count = 0

    def add(self, line: TraceLine) -> None:
        """Keep a line to be sent; when too many wait, drop it."""
        if len(self._lines) >= WAITING_COUNT_MAX:
            self.dropped_count += 1
            return
        self._lines.append(line)
        self._arrived.set()

    def start(self) -> None:
        """Begin to send in the background."""
        self._task = asyncio.create_task(self._run(), name="trace")

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            await asyncio.sleep(AGE_MAX_MS / 1000)
            await self._flush()

    async def _flush(self) -> None:
        self._arrived.clear()
        while self._lines:
            lines = [self._lines.popleft()]
            length = len(lines[0].text)
            while self._lines and length + len(self._lines[0].text) <= TEXT_LENGTH_MAX:
                lines.append(self._lines.popleft())
                length += len(lines[-1].text)
            await self._send_lines(lines)

    async def _send_lines(self, lines: Sequence[TraceLine]) -> None:
        keys = dict.fromkeys(key for line in lines for key in line.keys if key)
        message = Message(
            topic=self._topic, body="".join(line.text for line in lines).encode(), keys=list(keys)
        )
        try:
            await self._send(message)
        except (ClientError, RemotingError) as error:
            self.dropped_count += len(lines)
            logger.warning("trace not sent: lines=%d reason=%s", len(lines), error)

    async def close(self, closing: ClosingTime) -> None:
        """Send the lines that are left, if there is time for them, and stop."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await closing.step("the last lines of the trace", self._flush())
