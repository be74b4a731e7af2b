"""What push and lite pull consumers have in common as members of a consumer group."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from flintmq.client.assigning.subscriptions import Subscriptions
from flintmq.client.namespaces import wrap
from flintmq.client.options import checked_group
from flintmq.client.searching.message_finder import MessageFinder

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from flintmq.client.assigning.assignment import Assignment
    from flintmq.client.assigning.sharing import SharingRules
    from flintmq.client.closing_time import ClosingTime
    from flintmq.client.instance import ClientInstance
    from flintmq.client.options import ClientOptions
    from flintmq.model.message_queue import MessageQueue
    from flintmq.model.subscription import Subscription


class GroupMember(MessageFinder):
    """A consumer that shares the queues of its topics with the other members of its group."""

    _assignment: Assignment

    def __init__(
        self,
        group: str,
        subscriptions: Mapping[str, str],
        expression_type: str,
        *,
        rules: SharingRules,
        options: ClientOptions | None,
        client: ClientInstance | None,
        stream: bool = False,
    ) -> None:
        super().__init__(client, options, stream=stream)
        self.group = wrap(self.namespace, checked_group(group))
        self.rules = rules
        self.topics = Subscriptions(self.namespace)
        for topic, expression in subscriptions.items():
            self.topics.add(topic, expression, expression_type)
        self._is_member = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def assigned(self) -> frozenset[MessageQueue]:
        """The queues that this member has now."""
        return frozenset(self._assignment.queues)

    def subscription(self, topic: str) -> Subscription | None:
        """Return the subscription to a topic."""
        return self.topics.get(topic)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine in the background until it or this consumer ends."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _leave(self, client: ClientInstance, closing: ClosingTime) -> None:
        """Leave the group, if this consumer has joined it."""
        if self._is_member:
            self._is_member = False
            leaving = client.remove_consumer(self.group)
            await closing.step("brokers that are told of the end", leaving)
