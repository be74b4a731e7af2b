"""The requests of one connection whose answers take several turns of the loop."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING

from flintmq.format.wire.codes import ResponseCode
from flintmq.remoting.processors import Answer, failed, send_answer
from flintmq.remoting.refusal_counts import WAITING_REQUESTS

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from flintmq.format.wire.command import Command
    from flintmq.remoting.peer import Peer
    from flintmq.remoting.processors import Outcome
    from flintmq.remoting.request_bytes import RequestBytes
    from flintmq.remoting.request_table import RequestTable


class StartedRequests:
    """Runs the coroutines of processors for one peer, a bounded number of them."""

    def __init__(
        self,
        peer: Peer,
        requests: RequestTable,
        *,
        count_max: int,
        request_bytes: RequestBytes | None = None,
    ) -> None:
        self._peer = peer
        self._requests = requests
        self._count_max = count_max
        self._request_bytes = request_bytes
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def tasks(self) -> frozenset[asyncio.Task[None]]:
        """Those that are under way."""
        return frozenset(self._tasks)

    def start(self, command: Command, work: Awaitable[Outcome], began: float) -> None:
        """Answer a request when its work is done; refuse it if too many are under way."""
        size, busy = len(command.body), None
        if len(self._tasks) >= self._count_max:
            self._requests.refused.note(WAITING_REQUESTS)
            busy = f"[OVERLOAD]{len(self._tasks)} requests of this connection are waiting"
        elif self._request_bytes is not None:
            busy = self._request_bytes.take(self._peer, size)
        if busy is not None:
            if asyncio.iscoroutine(work):
                work.close()
            send_answer(self._peer, command, Answer(ResponseCode.SYSTEM_BUSY, remark=busy))
            return
        task = asyncio.get_running_loop().create_task(self._finish(command, work, began))
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._ended, size))

    def _ended(self, size: int, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._request_bytes is not None:
            self._request_bytes.give_back(self._peer, size)

    async def _finish(self, command: Command, work: Awaitable[Outcome], began: float) -> None:
        try:
            answer = await work
        except Exception as error:
            answer = failed(command.code, error)
        if answer is not None:
            send_answer(self._peer, command, answer)
            self._requests.note_answer(command.code, answer.code, began)

    def cancel(self) -> None:
        """End all of them without an answer."""
        for task in self._tasks:
            task.cancel()
