"""Answers that wait until the tables they speak of are on the disk.

A request may create a topic or a group, which is written in a thread (`StateKeeper`).  Its answer,
and that of every message sent to a topic that is not written yet, leaves afterwards: else a
power failure could take the topic of a message that was acknowledged.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from flintmq.remoting import Answer

if TYPE_CHECKING:
    from flintmq.broker.tables.group_table import GroupTable
    from flintmq.broker.tables.topic_table import TopicTable
    from flintmq.remoting import Request
    from flintmq.remoting.processors import Outcome, Processor
    from flintmq.store.errors import StoreError

TopicsOf: TypeAlias = Callable[["Request[Any]"], tuple[str, ...]]
"""Gives the topics that the message of a request may go to."""


class SavedAnswers:
    """Holds answers back until topics and groups are on the disk."""

    def __init__(self, topics: TopicTable, groups: GroupTable) -> None:
        self._topics = topics
        self._groups = groups

    @property
    def _version(self) -> int:
        return self._topics.keeper.version + self._groups.keeper.version

    def guard(self, processor: Processor, topics_of: TopicsOf | None = None) -> Processor:
        """Return a processor whose answers wait for its topics, or for all that has changed.

        Whether an answer has to wait is decided when it is given: a request that waited before
        may have made its topic only then.
        """

        @functools.wraps(processor)
        def run(request: Request[Any]) -> Outcome | Awaitable[Outcome]:
            before = self._version

            def must_wait() -> bool:
                if topics_of is None:
                    return self._version != before
                return not all(map(self._topics.is_saved, topics_of(request)))

            # Before anything else: the processor may answer by itself.
            request.hold(
                lambda done: self._when_saved(done) if must_wait() else done(None),
            )
            outcome = processor(request)
            if outcome is None:
                return None
            if not isinstance(outcome, Answer):
                return self._finish(request, outcome)
            if not must_wait():
                return outcome
            request.answer(outcome)
            return None

        return run

    async def _finish(self, request: Request[Any], outcome: Awaitable[Outcome]) -> None:
        """Await the answer of a coroutine, which may have to wait then."""
        answer = await outcome
        if answer is not None:
            request.answer(answer)

    def _when_saved(self, done: Callable[[StoreError | None], None]) -> None:
        """Call ``done`` when both tables are on the disk, or with the first failure."""

        def topics_saved(failure: StoreError | None) -> None:
            if failure is not None:
                done(failure)
            else:
                self._groups.keeper.when_saved(done)

        self._topics.keeper.when_saved(topics_saved)
