"""Several brokers in memory, with what an archive asks them for, and sessions that lead to them."""

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from types import TracebackType
from typing import Any, Final, TypeVar

from flintmq.client.pulling.puller import PullAnswer
from flintmq.format.wire.bodies.dialect import dumps_body
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.codec import Header
from flintmq.model.message_queue import MessageQueue
from flintmq.model.routes import BrokerData, ClusterInfo
from flintmq.spark.live.cluster import Absence, Cluster
from flintmq.spark.live.ranges import Offsets
from tests.kits.spark.fake_cluster import FakeCluster, VirtualTime

CLUSTER: Final = "fake"
_SETTINGS: Final = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
}
_T = TypeVar("_T")


class FakeBrokers(Cluster):
    """A cluster of fake brokers, by their names."""

    def __init__(self) -> None:
        self.puller = self
        self.brokers: dict[str, FakeCluster] = {}

    def add(self, name: str) -> FakeCluster:
        """Add a broker without topics."""
        return self.brokers.setdefault(name, FakeCluster(name))

    async def queues(self) -> list[MessageQueue]:
        return sorted([one for broker in self.brokers.values() for one in await broker.queues()])

    async def told_queues(self) -> list[MessageQueue]:
        return await self.queues()

    def require(self, queues: Collection[MessageQueue]) -> None:
        pass

    async def absence(
        self, queue: MessageQueue, look: Callable[[], Awaitable[Collection[MessageQueue]]]
    ) -> Absence | None:
        return await self.brokers[queue.broker_name].absence(queue, look)

    async def begins(self, queues: Iterable[MessageQueue]) -> Offsets:
        return {queue: self.brokers[queue.broker_name].found(queue).begin for queue in queues}

    async def ends(self, queues: Iterable[MessageQueue]) -> Offsets:
        return {queue: self.brokers[queue.broker_name].found(queue).end for queue in queues}

    async def info(self) -> ClusterInfo:
        data = {
            name: BrokerData(cluster=CLUSTER, broker_name=name, addresses={0: "none:1"})
            for name in self.brokers
        }
        return ClusterInfo(brokers=data, clusters={CLUSTER: tuple(data)})

    async def ask_home(self, queue: MessageQueue, code: int, header: Header | None = None) -> bytes:
        if code == RequestCode.GET_BROKER_CONFIG:
            return "".join(f"{name}={value}\n" for name, value in _SETTINGS.items()).encode()
        return dumps_body({"offsetTable": {}})

    async def log_bounds(self, queue: MessageQueue) -> tuple[int, int] | None:
        return await self.brokers[queue.broker_name].log_bounds(queue)

    async def record_in_log(self, queue: MessageQueue, physical_offset: int) -> bytes | None:
        return await self.brokers[queue.broker_name].record_in_log(queue, physical_offset)

    async def pull(
        self, queue: MessageQueue, offset: int, count_max: int, *, everything: bool = False
    ) -> PullAnswer:
        broker = self.brokers[queue.broker_name]
        return await broker.pull(queue, offset, count_max, everything=everything)


class FakeSession:
    """Stands for a session with a cluster: coroutines run at once, in virtual time."""

    client = None

    def __init__(self, runner: VirtualTime, on_open: Callable[[], None] = lambda: None) -> None:
        self._runner = runner
        self._on_open = on_open

    def __enter__(self) -> "FakeSession":
        self._on_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine and return its result."""
        return self._runner.run(work)
