"""What both ways of consuming share: the call of a handler, and what is noted of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from flintmq.client.wall_clock import wall_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from flintmq.client.assigned_queue import AssignedQueue
    from flintmq.client.consume_statistics import ConsumeStatistics
    from flintmq.client.handlers import Outcome, Runner
    from flintmq.client.messages import ReceivedMessage
    from flintmq.client.offset_store import OffsetStore
    from flintmq.client.push_settings import PushSettings
    from flintmq.client.send_back import SendBack
    from flintmq.model.message_queue import MessageQueue


class Consuming(ABC):
    """Hands messages of assigned queues to a handler and notes how far it has come.

    ``send_back`` is there in a clustering group, whose other members get what failed here.
    """

    def __init__(
        self,
        runner: Runner,
        settings: PushSettings,
        *,
        offsets: OffsetStore,
        send_back: SendBack | None,
        statistics: ConsumeStatistics,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self._runner = runner
        self._settings = settings
        self._offsets = offsets
        self._send_back = send_back
        self._statistics = statistics
        self._now_ms = now_ms
        self._is_stopping = False
        self.is_idle = True
        """Whether all handlers had come to their end when this was stopped."""
        self._set_up()

    @abstractmethod
    def _set_up(self) -> None:
        """Make ready what this way of consuming has of its own."""

    async def _hand_over(
        self, one: AssignedQueue, messages: Sequence[ReceivedMessage], *, began_ms: int
    ) -> Outcome:
        """Call the handler and count the call."""
        outcome = await self._runner.run(messages)
        one.held.last_consume_ms = self._now_ms()
        self._statistics.consumed(
            messages[0].topic,
            len(messages),
            one.held.last_consume_ms - began_ms,
            is_success=outcome.is_success,
        )
        return outcome

    @abstractmethod
    def begin(self, one: AssignedQueue) -> None:
        """Consume a queue until it is left."""

    @abstractmethod
    def arrived(self, one: AssignedQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Consume messages that the queue holds now."""

    @abstractmethod
    async def give_stuck_back(self, queues: Iterable[AssignedQueue]) -> None:
        """Give messages back that handlers do not come to an end with, where that may be."""

    @abstractmethod
    async def settle(self, one: AssignedQueue) -> bool:
        """Wait for what has to end before a dropped queue may be handed over.

        Return whether it did; otherwise a handler is still at work there.
        """

    @abstractmethod
    async def stop(self, timeout_ms: int) -> set[MessageQueue]:
        """Begin nothing more and wait for handlers at work; cancel those that take too long.

        Return the queues in which handlers may still be at work.
        """
