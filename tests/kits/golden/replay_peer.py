"""What a replay speaks with, and the time in which it does: one connection, one clock."""

import asyncio
import contextlib
import time
from typing import Final

from flintmq.format.wire.command import Command, decode_command, encode_command
from flintmq.format.wire.frame import FrameDecoder

ANSWER_TIMEOUT_S: Final = 10
BARRIER_CODE: Final = 9999
"""A request that nobody knows, and that is therefore only answered."""
BARRIER_OPAQUE: Final = -77


class Peer:
    """One connection of a recorded client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self._answers: dict[int, Command] = {}
        self._requests: list[Command] = []
        self._news = asyncio.Condition()
        self.opaques: dict[int, int] = {}
        """Recorded opaque of a server's request → the one it has now."""
        self._task = asyncio.create_task(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        decoder = FrameDecoder()
        while chunk := await reader.read(1 << 16):
            async with self._news:
                for command in map(decode_command, decoder.frames(chunk)):
                    if command.is_response:
                        self._answers[command.opaque] = command
                    else:
                        self._requests.append(command)
                self._news.notify_all()

    def send(self, command: Command) -> None:
        self.writer.write(encode_command(command))

    async def answer(self, opaque: int) -> Command:
        """Wait for the answer to a request."""
        async with asyncio.timeout(ANSWER_TIMEOUT_S), self._news:
            await self._news.wait_for(lambda: opaque in self._answers)
            return self._answers[opaque]

    def is_asked(self, code: int) -> bool:
        """Whether a request of the server is there."""
        return any(one.code == code for one in self._requests)

    async def request(self, code: int) -> Command:
        """Wait for a request of the server."""
        async with asyncio.timeout(ANSWER_TIMEOUT_S), self._news:
            await self._news.wait_for(lambda: self.is_asked(code))
            found = next(one for one in self._requests if one.code == code)
            self._requests.remove(found)
            return found

    async def again(self, command: Command) -> Command:
        """Send a request once more and return the new answer."""
        del self._answers[command.opaque]
        self.send(command)
        return await self.answer(command.opaque)

    async def barrier(self) -> None:
        """Wait until everything sent so far has been handled."""
        self._answers.pop(BARRIER_OPAQUE, None)
        self.send(Command(code=BARRIER_CODE, opaque=BARRIER_OPAQUE))
        await self.answer(BARRIER_OPAQUE)

    async def close(self) -> None:
        self.writer.close()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, OSError):
            await self._task


class LeapingClock:
    """The time of the recording: it passes as ours does, and leaps where that went on later."""

    def __init__(self, start_ms: int) -> None:
        self._ahead_ms = start_ms - time.time_ns() // 1_000_000

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._ahead_ms

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead_ms / 1000

    def leap_to(self, time_ms: int) -> None:
        self._ahead_ms += max(time_ms - self.now_ms(), 0)
