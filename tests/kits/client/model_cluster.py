"""A broker in memory, and processes with real consumers that can be stopped one by one.

Each process has an event loop of its own, whose time is that of the world.  A process that is not
run stands still, as under SIGSTOP, while the world and the others go on.  Messages have serial
numbers; offsets are places in the queue, which may become shorter at either end.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from flintmq.client.errors import ResponseError
from flintmq.client.instance import ClientInstance, ConsumerMember
from flintmq.client.options import ClientOptions
from flintmq.client.pulling.puller import COMMIT_OFFSET
from flintmq.format.stored.record_encoding import encode_record
from flintmq.format.wire.bodies.dialect import Members, dumps_body, loads_body, queue_from
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers.codec import Header
from flintmq.format.wire.headers.offsets import OffsetResponse, UpdateConsumerOffsetRequest
from flintmq.format.wire.headers.pull import PullMessageRequest, PullMessageResponse
from flintmq.format.wire.headers.send_back import SendBackRequest
from flintmq.model.message_queue import MessageQueue
from flintmq.remoting import ConnectionLostError

TOPIC: Final = "orders"
GROUP: Final = "readers"
QUEUE: Final = MessageQueue(TOPIC, "broker-a", 0)
ADDRESS: Final = "10.0.0.1:10911"
LOCK_LIFE_S: Final = 60
REBALANCE_S: Final = 20
PERSIST_S: Final = 5
UNWANTED_TAG_EVERY: Final = 5
SLOW_TURNS: Final = 20


class World:
    """The time that all clocks show."""

    def __init__(self) -> None:
        self.now_s = 1000.0


class WorldLoop(asyncio.SelectorEventLoop):
    """The event loop of one process; nothing in it moves unless it is run."""

    def __init__(self, world: World) -> None:
        self._world = world
        super().__init__()

    def time(self) -> float:
        return self._world.now_s

    def settle(self) -> None:
        """Let everything run that can."""
        self.run_until_complete(_settle_down())


async def _settle_down() -> None:
    for _ in range(60):
        await asyncio.sleep(0)


class ModelBroker:
    """One queue, the progress of one group and its lock; it notes what must never happen."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.stored: dict[int, int] = {}
        """Serial numbers by queue offset."""
        self.begin = self.end = 0
        self.pulled_end = 0
        """Where the last answer to a pull has told to go on."""
        self._next_serial = 0
        self.committed: int | None = None
        self.safe: set[int] = set()
        """Serial numbers that are handled, given back, or passed by the will of a user."""
        self.started: list[int] = []
        """Serial numbers in the order in which handlers got them."""
        self.is_lowering_allowed = False
        self.checks_lowering = True
        self.is_taking_back = True
        self.violations: list[str] = []
        self.members: set[str] = set()
        self._lock: tuple[str, float] | None = None
        self._held: list[tuple[PullMessageRequest, asyncio.Future[Command]]] = []

    # -- what happens to the queue -----------------------------------------------------------

    def send(self, count: int) -> None:
        for _ in range(count):
            self.stored[self.end] = self._next_serial
            self._next_serial += 1
            self.end += 1
        self._answer_held()

    def lose_end(self, count: int) -> None:
        """Be started again without the last messages."""
        self.end = max(self.begin, self.end - count)
        self.stored = {at: one for at, one in self.stored.items() if at < self.end}
        self.is_lowering_allowed = True
        for _, answer in self._held:
            if not answer.done():
                answer.set_exception(ConnectionLostError(ADDRESS))
        self._held.clear()

    def drop_front(self, count: int) -> None:
        """Delete the oldest messages."""
        self.begin = min(self.end, self.begin + count)
        self.stored = {at: one for at, one in self.stored.items() if at >= self.begin}

    def will_pass(self, offset: int) -> None:
        """Note that a user wants the group to be at an offset, whatever lies before it."""
        self.safe |= {one for at, one in self.stored.items() if at < offset}
        self.is_lowering_allowed = True

    def check_turn(self, who: str, offset: int) -> None:
        """Note a violation if it is not the turn of a member to handle a message in order."""
        if self.holder() not in (None, who):
            self.violations.append(f"{who} handles {offset}, {self.holder()} has the lock")
        if self.committed is not None and offset < self.committed:
            self.violations.append(f"{who} handles {offset}, committed is {self.committed}")

    def unsafe_before(self, offset: int) -> list[int]:
        return [
            at
            for at, one in self.stored.items()
            if at < offset and is_wanted(one) and one not in self.safe
        ]

    def holder(self) -> str | None:
        """Return who has the lock now."""
        if self._lock is None or self._world.now_s - self._lock[1] > LOCK_LIFE_S:
            return None
        return self._lock[0]

    # -- requests ----------------------------------------------------------------------------

    def commit(self, offset: int, who: str) -> None:
        if unsafe := self.unsafe_before(offset):
            self.violations.append(f"{who} commits {offset}, not handled: {unsafe}")
        lowers = self.committed is not None and offset < self.committed
        if lowers and self.checks_lowering and not self.is_lowering_allowed:
            self.violations.append(f"{who} commits {offset} after {self.committed}")
        self.committed = offset

    def pull(self, header: PullMessageRequest, who: str) -> Command | None:
        """Return the answer to a pull; None if it is to be held."""
        if header.sys_flag & COMMIT_OFFSET:
            self.commit(header.commit_offset, who)
        return self._read(header)

    def _read(self, header: PullMessageRequest) -> Command | None:
        at = header.queue_offset
        if at < self.begin:
            return self._pulled(ResponseCode.PULL_OFFSET_MOVED, self.begin)
        if at > self.end:
            return self._pulled(ResponseCode.PULL_OFFSET_MOVED, self.end)
        if at == self.end:
            return None
        last = min(at + header.max_msg_nums, self.end)
        wanted = [n for n in range(at, last) if is_wanted(self.stored[n])]
        body = b"".join(record(n, self.stored[n]) for n in wanted)
        code = ResponseCode.SUCCESS if wanted else ResponseCode.PULL_RETRY_IMMEDIATELY
        return self._pulled(code, last, body)

    def _pulled(self, code: int, next_offset: int, body: bytes = b"") -> Command:
        self.pulled_end = next_offset
        header = PullMessageResponse(
            suggest_which_broker_id=0,
            next_begin_offset=next_offset,
            min_offset=self.begin,
            max_offset=self.end,
        )
        return Command(code=code, ext_fields=header.encode(), body=body)

    async def hold(self, header: PullMessageRequest) -> Command:
        answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._held.append((header, answer))
        try:
            async with asyncio.timeout(header.suspend_timeout_millis / 1000):
                return await answer
        except TimeoutError:
            return self._pulled(ResponseCode.PULL_NOT_FOUND, header.queue_offset)

    def _answer_held(self) -> None:
        held, self._held = self._held, []
        for header, answer in held:
            found = None if answer.done() else self._read(header)
            if found is not None:
                answer.set_result(found)
            elif not answer.done():
                self._held.append((header, answer))

    def lock(self, who: str, queues: list[MessageQueue]) -> list[MessageQueue]:
        if not queues or self.holder() not in (None, who):
            return []
        self._lock = who, self._world.now_s
        return queues

    def unlock(self, who: str) -> None:
        if self._lock is not None and self._lock[0] == who:
            self._lock = None

    def serve(self, who: str, code: int, header: Any, body: bytes) -> Command:
        """Answer any request but a pull."""
        match code:
            case RequestCode.QUERY_CONSUMER_OFFSET:
                if self.committed is None:
                    return Command(code=ResponseCode.QUERY_NOT_FOUND)
                return _offset(self.committed)
            case RequestCode.UPDATE_CONSUMER_OFFSET:
                assert isinstance(header, UpdateConsumerOffsetRequest)
                self.commit(header.commit_offset, who)
            case RequestCode.GET_CONSUMER_LIST_BY_GROUP:
                answer = dumps_body({"consumerIdList": sorted(self.members)})
                return Command(code=ResponseCode.SUCCESS, body=answer)
            case RequestCode.LOCK_BATCH_MQ | RequestCode.UNLOCK_BATCH_MQ:
                asked = list(map(queue_from, Members(loads_body(body), "locks").items("mqSet")))
                if code == RequestCode.UNLOCK_BATCH_MQ:
                    self.unlock(who)
                    return Command(code=ResponseCode.SUCCESS)
                answer = dumps_body({"lockOKMQSet": self.lock(who, asked)})
                return Command(code=ResponseCode.SUCCESS, body=answer)
            case RequestCode.GET_MAX_OFFSET:
                return _offset(self.end)
            case RequestCode.GET_MIN_OFFSET:
                return _offset(self.begin)
            case RequestCode.CONSUMER_SEND_MSG_BACK:
                assert isinstance(header, SendBackRequest)
                if not self.is_taking_back:
                    return Command(code=ResponseCode.SYSTEM_BUSY)
                self.safe.add(header.offset)
            case _:
                return Command(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        return Command(code=ResponseCode.SUCCESS)


def is_wanted(serial: int) -> bool:
    """Return whether a message has a tag that the group subscribes to."""
    return serial % UNWANTED_TAG_EVERY != UNWANTED_TAG_EVERY - 1


def record(offset: int, serial: int) -> bytes:
    """Return a stored message; its physical offset is its serial number."""
    return encode_record(
        TOPIC.encode(), 0, 0, offset, serial, 0, 0, bytes(8), 0, bytes(8), 0, 0, b"%d" % serial, b""
    )


def _offset(offset: int) -> Command:
    return Command(code=ResponseCode.SUCCESS, ext_fields=OffsetResponse(offset=offset).encode())


class ModelClient:
    """Stands for a `ClientInstance`: requests reach the broker at once, answers take a turn."""

    def __init__(self, world: World, broker: ModelBroker, name: str) -> None:
        self.options = ClientOptions(namesrv="127.0.0.1:1")
        self.client_id = name
        self._world = world
        self._broker = broker
        self.routes = self.remoting = self
        self.has_repeating_headers = False
        self._member: ConsumerMember | None = None
        self._due = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.is_gone = False
        self.slow_code: int | None = None
        """Answers to these requests take many turns."""

    def now_ms(self) -> int:
        return round(self._world.now_s * 1000)

    # -- members -----------------------------------------------------------------------------

    def add_consumer(self, member: ConsumerMember) -> None:
        self._member = member
        self._broker.members.add(self.client_id)
        self._tasks = [
            asyncio.create_task(self._rebalance_forever()),
            asyncio.create_task(self._persist_forever()),
        ]

    async def remove_consumer(self, group: str) -> None:
        self._broker.members.discard(self.client_id)
        for task in self._tasks:
            task.cancel()

    async def heartbeat(self) -> None:
        if self._member is not None:
            self._broker.members.add(self.client_id)

    def wake_rebalance(self) -> None:
        self._due.set()

    async def _rebalance_forever(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REBALANCE_S):
                    await self._due.wait()
            self._due.clear()
            assert self._member is not None
            await self._member.rebalance()

    async def _persist_forever(self) -> None:
        while True:
            await asyncio.sleep(PERSIST_S)
            assert self._member is not None
            await self._member.persist_offsets()

    # -- routes ------------------------------------------------------------------------------

    async def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        return [QUEUE] if topic == TOPIC else []

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        return []

    async def home(self, queue: MessageQueue) -> str:
        return ADDRESS

    def any_broker(self, topic: str) -> str | None:
        return ADDRESS

    def master(self, broker_name: str) -> str | None:
        return ADDRESS

    def reader(self, broker_name: str, broker_id: int) -> tuple[str, bool] | None:
        return ADDRESS, False

    # -- requests ----------------------------------------------------------------------------

    async def call(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
    ) -> Command:
        if self.is_gone:
            raise ConnectionLostError(ADDRESS)
        if isinstance(header, PullMessageRequest):
            found = self._broker.pull(header, self.client_id)
            answer = await self._broker.hold(header) if found is None else found
            await asyncio.sleep(0)
            return answer
        answer = self._broker.serve(self.client_id, code, header, body)
        for _ in range(SLOW_TURNS if code == self.slow_code else 1):
            await asyncio.sleep(0)
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError.for_code(answer.code, "refused", address=address)
        return answer


class Process:
    """A process with one consumer, made by ``make`` from its client."""

    def __init__(
        self, world: World, broker: ModelBroker, name: str, make: Callable[[ClientInstance], Any]
    ) -> None:
        self.name = name
        self.world = world
        self.loop = WorldLoop(world)
        self.is_stopped = False
        self.client = cast(ClientInstance, self.run(_made(ModelClient, world, broker, name)))
        self.consumer = self.run(_made(make, self.client))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine to its end; the world's time does not move meanwhile."""
        return self.loop.run_until_complete(work)

    def settle(self) -> None:
        if not self.is_stopped:
            self.loop.settle()

    def crash(self) -> None:
        """End at once: nothing of it reaches the broker any more."""
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        cast(ModelClient, self.client).is_gone = True
        self.loop.settle()
        self.loop.close()


async def _made(make: Callable[..., Any], *arguments: Any) -> Any:
    return make(*arguments)
