"""One pull of one queue, its records left as they are: bytes in the format of the log."""

from collections import defaultdict
from typing import NamedTuple

from flintmq.client.errors import NoRouteError, ResponseError
from flintmq.client.instance import ClientInstance
from flintmq.client.pulling import SUBSCRIPTION, PullStatus
from flintmq.format.codes import RequestCode
from flintmq.format.headers.pull import PullMessageRequest, PullMessageResponse
from flintmq.model.message_queue import MessageQueue
from flintmq.model.subscription import Subscription
from flintmq.spark.live.errors import queue_text
from flintmq.spark.live.options import LiveOptions
from flintmq.spark.live.session import persist

_STATUSES = {int(one.value): one for one in PullStatus}


class PullAnswer(NamedTuple):
    """What a pull from ``offset`` on has brought; ``next_offset`` is where to go on."""

    status: PullStatus
    offset: int
    body: bytes
    next_offset: int
    min_offset: int
    max_offset: int


class LivePuller:
    """Pulls from any queue of a cluster; a broker that does not answer is tried again.

    It is no member of its group, commits nothing, and has every pull answered at once.
    """

    def __init__(self, client: ClientInstance, options: LiveOptions) -> None:
        self._client = client
        self._options = options
        self._subscriptions: dict[str, Subscription] = {}
        # A broker may say that a replica of it is to be asked.
        self._suggested: defaultdict[MessageQueue, int] = defaultdict(int)

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
        address = await self._address(queue)
        header = PullMessageRequest(
            consumer_group=self._options.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=min(count_max, self._options.pull_count),
            sys_flag=SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=subscription.expression,
            sub_version=subscription.version,
            expression_type=subscription.expression_type,
            broker_name=queue.broker_name,
        )
        answer = await self._client.remoting.call(
            address, RequestCode.PULL_MESSAGE, header, timeout_ms=self._options.pull_timeout_ms
        )
        status = _STATUSES.get(answer.code)
        if status is None:
            raise ResponseError.for_code(answer.code, answer.remark, address=address)
        told = PullMessageResponse.decode(answer.ext_fields)
        self._suggested[queue] = told.suggest_which_broker_id
        return PullAnswer(
            status,
            offset,
            answer.body if status is PullStatus.FOUND else b"",
            told.next_begin_offset,
            told.min_offset,
            told.max_offset,
        )

    async def _address(self, queue: MessageQueue) -> str:
        routes, wanted = self._client.routes, self._suggested[queue]
        found = routes.reader(queue.broker_name, wanted)
        if found is None:
            await routes.fetch(queue.topic)
            found = routes.reader(queue.broker_name, wanted)
        if found is None:
            raise NoRouteError(
                queue.topic, f"broker {queue.broker_name} is not registered", "wait, or start it"
            )
        return found[0]
