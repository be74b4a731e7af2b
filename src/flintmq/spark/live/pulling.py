"""One pull of one queue, its records left as they are: bytes in the format of the log."""

from flintmq.client.instance import ClientInstance
from flintmq.client.pulling.puller import PullAnswer, Puller, PullStatus
from flintmq.model.message_queue import MessageQueue
from flintmq.model.subscription import Subscription
from flintmq.spark.live.errors import queue_text
from flintmq.spark.live.live_options import LiveOptions
from flintmq.spark.live.live_session import persist


class LivePuller:
    """Pulls from any queue of a cluster; a broker that does not answer is tried again.

    It is no member of its group, commits nothing, and has every pull answered at once.
    """

    def __init__(self, client: ClientInstance, options: LiveOptions) -> None:
        self._client = client
        self._options = options
        self._subscriptions: dict[str, Subscription] = {}
        self._puller = Puller(client, options.group)

    async def pull(
        self, queue: MessageQueue, offset: int, count_max: int, *, everything: bool = False
    ) -> PullAnswer:
        """Ask for messages from an offset on; with ``everything`` whatever their tags are.

        Raises:
            UnreachableError: the broker did not answer.
            RefusedReadError: it refuses.
        """
        subscription = self._subscription(queue.topic, everything=everything)
        return await persist(
            queue_text(queue),
            self._options.retries,
            lambda: self._ask(queue, offset, count_max, subscription),
            lambda: self._client.routes.fetch(queue.topic),
        )

    def _subscription(self, topic: str, *, everything: bool) -> Subscription:
        if everything:
            return Subscription(topic=topic)
        if topic not in self._subscriptions:
            self._subscriptions[topic] = self._options.subscription(topic)
        return self._subscriptions[topic]

    async def _ask(
        self, queue: MessageQueue, offset: int, count_max: int, subscription: Subscription
    ) -> PullAnswer:
        answer = await self._puller.ask(
            queue,
            offset,
            subscription,
            count_max=min(count_max, self._options.pull_count),
            with_subscription=True,
            timeout_ms=self._options.pull_timeout_ms,
        )
        return answer if answer.status is PullStatus.FOUND else answer._replace(body=b"")
