"""The base of concurrent and orderly consumption: it calls the handler and counts the calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from flintmq.client.wall_clock import monotonic_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from flintmq.client.assigning.assigned_queue import AssignedQueue
    from flintmq.client.assigning.offset_store import OffsetStore
    from flintmq.client.consuming.consume_statistics import ConsumeStatistics
    from flintmq.client.consuming.handlers import HandlerCaller
    from flintmq.client.consuming.push_settings import PushSettings
    from flintmq.client.messaging.messages import ReceivedMessage
    from flintmq.client.pulling.send_back import SendBack
    from flintmq.model.message_queue import MessageQueue

CANCEL_WAIT_S: Final = 0.2
"""How long handlers that were cancelled at the end may take to notice it."""


class ConsumeService(ABC):
    """Hands messages of assigned queues to a handler and notes how far each queue is done.

    ``send_back`` is given in a clustering group, where another member may get what failed here.
    """

    def __init__(
        self,
        runner: HandlerCaller,
        settings: PushSettings,
        *,
        offsets: OffsetStore,
        send_back: SendBack | None,
        statistics: ConsumeStatistics,
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._runner = runner
        self._settings = settings
        self._offsets = offsets
        self._send_back = send_back
        self._statistics = statistics
        self._now_ms = now_ms
        self._is_stopping = False
        self.is_idle = True
        """Whether all handlers had finished when this was stopped."""
        self._set_up()

    @abstractmethod
    def _set_up(self) -> None:
        """Create the state that only this kind of consumption needs."""

    def _note_calls(
        self,
        one: AssignedQueue,
        messages: Sequence[ReceivedMessage],
        *,
        elapsed_ms: int,
        call_count: int = 1,
        is_success: bool = True,
    ) -> None:
        """Count calls of the handler that have ended in the same way."""
        one.held.last_consume_ms = self._now_ms()
        self._statistics.consumed(
            messages[0].topic,
            len(messages),
            elapsed_ms,
            is_success=is_success,
            call_count=call_count,
        )

    @abstractmethod
    def begin(self, one: AssignedQueue) -> None:
        """Get ready to consume a queue until it is given up."""

    @abstractmethod
    def arrived(self, one: AssignedQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Consume messages that the queue holds now."""

    @abstractmethod
    async def give_stuck_back(self, queues: Iterable[AssignedQueue]) -> None:
        """Give back messages whose handlers do not finish, where the order allows it."""

    @abstractmethod
    async def settle(self, one: AssignedQueue) -> bool:
        """Wait for handlers that must finish before a dropped queue goes to another member.

        Return whether they did; otherwise a handler is still running.
        """

    @abstractmethod
    def close(self, *, wait: bool) -> None:
        """Let threads end, where there are any; with ``wait``, return when they have."""

    def halt(self) -> None:
        """Start no further batch; `stop` has to follow."""
        self._is_stopping = True

    @abstractmethod
    async def stop(self, timeout_ms: int) -> set[MessageQueue]:
        """Start no further batch and wait for running handlers; cancel those that take too long.

        Return the queues for which handlers may still be running.
        """
