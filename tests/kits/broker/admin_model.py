"""A broker that is written to while operators work on it, and what must hold of its messages.

Requests come over a connection in memory, to the real processors and a real store.  Answers are
noted when they come; the oracle knows nothing else.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Any, Final

from flintmq.broker import Broker, read_settings, run_broker
from flintmq.format.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from flintmq.format.message_id import decode_offset_id
from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command, decode_command, encode_command
from flintmq.format.wire.frame import FrameDecoder
from flintmq.format.wire.headers.admin import CreateTopicRequest, DeleteGroupRequest, TopicRequest
from flintmq.format.wire.headers.codec import Header
from flintmq.format.wire.headers.offsets import QueueBoundRequest
from flintmq.offline.findings import Finding
from flintmq.offline.layout import QueueKey, SizeOptions, find_store
from flintmq.remoting import Connection
from flintmq.testing import ManualClock
from soak.oracle import MessageId, Oracle, Place, Queue
from tests.kits.broker.broker_kit import SMALL, START_MS, eventually, pull_header, send_header
from tests.kits.broker.broker_kit import records as records_of
from tests.kits.broker.hostile_peer import MemoryTransport
from tests.kits.store.verified import problems_in

TOPICS: Final = ("first", "second")
QUEUE_COUNT: Final = 2
LOG_FILE_SIZE: Final = 32 << 10
PADDING: Final = b" " + b"x" * 900
PAST_FIRST_RUN_MS: Final = 61_000
"""Retention begins so long after a start."""
COMMIT_MS: Final = 50
SIZES: Final = SizeOptions(
    log_file_size=LOG_FILE_SIZE,
    queue_file_size=int(SMALL["mappedFileSizeConsumeQueue"]),
    hash_slots=int(SMALL["maxHashSlotNum"]),
    index_entries=int(SMALL["maxIndexNum"]),
)
FLUSHES: Final = {
    "asynchronous": {"flushDiskType": "ASYNC_FLUSH"},
    "synchronous": {"flushDiskType": "SYNC_FLUSH"},
    "pool": {"flushDiskType": "ASYNC_FLUSH", "transientStorePoolEnable": "true"},
}

Heard = Callable[[Command], None]


class AdminModel:
    """One broker after the other on one store, and an oracle outside."""

    def __init__(self, root: Path, flush: str) -> None:
        self._settings = SMALL | {
            "storePathRootDir": str(root),
            "mappedFileSizeCommitLog": str(LOG_FILE_SIZE),
            "maxMessageSize": "8192",
            "transientStorePoolSize": "3",
            **FLUSHES[flush],
        }
        self._clock = ManualClock(START_MS)
        self.oracle = Oracle({})
        self._message_count = 0
        self._opaque = 0
        self._waiting: dict[int, Heard] = {}
        self._broker: Broker | None = None

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Run a broker until the context ends, and have every request answered before."""
        config, store = read_settings(self._settings)
        async with run_broker(config, store, clock=self._clock) as broker:
            self._broker = broker
            self._connection = Connection(broker.server)
            self._transport = MemoryTransport(self._connection, 4000)
            self._connection.connection_made(self._transport)
            self._decoder = FrameDecoder()
            yield
            await self.settle()
            self._transport.close()

    # -- asking ------------------------------------------------------------------------------

    def _ask(
        self, code: int, header: Header | None, heard: Heard, body: bytes = b""
    ) -> tuple[bytes, int]:
        """Return the bytes of a request; its answer will be told to ``heard``."""
        self._opaque += 1
        self._waiting[self._opaque] = heard
        fields = {} if header is None else header.encode()
        command = Command(code=code, opaque=self._opaque, ext_fields=fields, body=body)
        return encode_command(command), self._opaque

    def feed(self, *requests: bytes) -> None:
        """Have the broker read requests at once."""
        self.hear()
        self._connection.data_received(b"".join(requests))
        self.hear()

    def hear(self) -> None:
        """Take the answers that have come."""
        written, self._transport.written = self._transport.written, []
        for answer in map(decode_command, self._decoder.frames(b"".join(written))):
            if answer.is_response:
                self._waiting.pop(answer.opaque)(answer)

    async def turn(self, count: int) -> None:
        """Let the broker's loop take some turns."""
        for _ in range(count):
            await asyncio.sleep(0)
            self.hear()

    async def settle(self) -> None:
        """Wait until everything is answered."""

        def is_settled() -> bool:
            self.hear()
            return not self._waiting

        await eventually(is_settled)

    async def order(self, code: RequestCode, header: Header | None, body: bytes = b"") -> Command:
        """Ask, and wait for the answer."""
        answers: list[Command] = []
        self.feed(self._ask(code, header, answers.append, body)[0])

        def is_answered() -> bool:
            self.hear()
            return bool(answers)

        await eventually(is_answered)
        return answers[0]

    # -- requests ----------------------------------------------------------------------------

    def send(self, topic: str, queue_id: int) -> bytes:
        """Return a send; a broker that refuses it has promised nothing."""
        (message,) = self._announce(topic, 1)

        def heard(answer: Command) -> None:
            self._note(answer, [message], Queue(topic, queue_id))

        body = message.text.encode() + PADDING
        return self._ask(
            RequestCode.SEND_MESSAGE_V2, send_header(topic, queue_id=queue_id), heard, body
        )[0]

    def send_batch(self, topic: str, queue_id: int, count: int) -> bytes:
        """Return a send of several messages."""
        messages = self._announce(topic, count)

        def heard(answer: Command) -> None:
            self._note(answer, messages, Queue(topic, queue_id))

        items = [BatchItem(0, one.text.encode() + PADDING, b"") for one in messages]
        header = send_header(topic, queue_id=queue_id, batch=True)
        return self._ask(RequestCode.SEND_BATCH_MESSAGE, header, heard, encode_batch(items))[0]

    def _announce(self, topic: str, count: int) -> list[MessageId]:
        messages = []
        for _ in range(count):
            # Requests of one read may be answered in any order, so each has a producer of its own.
            self._message_count += 1
            messages.append(MessageId(f"p{self._message_count}", 0))
            self.oracle.sending(messages[-1], topic)
        return messages

    def _note(self, answer: Command, messages: list[MessageId], queue: Queue) -> None:
        for number, message in enumerate(messages):
            if answer.code != ResponseCode.SUCCESS:
                self.oracle.failed(message)
                continue
            offset = int(answer.ext_fields["queueOffset"]) + number
            _, physical = decode_offset_id(answer.ext_fields["msgId"].split(",")[number])
            self.oracle.acknowledged(message, Place(queue, offset, physical))

    def create(self, topic: str) -> bytes:
        """Return a request for a topic, which may be there already."""
        header = CreateTopicRequest(
            topic=topic, read_queue_nums=QUEUE_COUNT, write_queue_nums=QUEUE_COUNT, perm=6
        )
        return self._ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header, _assert_done)[0]

    def delete(self, topic: str) -> bytes:
        """Return a request that deletes a topic."""

        def heard(answer: Command) -> None:
            _assert_done(answer)
            self.oracle.topic_deleted(topic)

        self.oracle.topic_deletion_began(topic)
        return self._ask(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest(topic=topic), heard)[0]

    def delete_group(self) -> bytes:
        """Return a request that deletes the group of the readers, with its offsets."""
        header = DeleteGroupRequest(group_name="consumers", remove_offset=True)
        return self._ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, header, _assert_done)[0]

    def clean(self, code: RequestCode) -> bytes:
        """Return a request that cleans something up."""
        return self._ask(code, None, _assert_done)[0]

    def change(self, text: bytes) -> bytes:
        """Return a request that changes settings."""
        return self._ask(RequestCode.UPDATE_BROKER_CONFIG, None, _assert_done, text)[0]

    # -- what is not asked for by requests alone ---------------------------------------------

    async def expire(self) -> None:
        """Let files of the log expire, as operators may ask for."""
        assert self._broker is not None
        self.oracle.expiry_requested()
        self.feed(
            self.change(b"fileReservedTime=0"), self.clean(RequestCode.DELETE_EXPIRED_COMMITLOG)
        )
        await self.settle()
        store = self._broker.context.store
        # Files go when the views have what is in them durably.
        await asyncio.to_thread(store.checkpoint)
        for _ in range(3):
            self._clock.advance(PAST_FIRST_RUN_MS)
            await asyncio.to_thread(store.retention.clean_log, self._clock.now_ms())
        self.feed(self.change(b"fileReservedTime=72"))
        await self.settle()

    async def check(self) -> None:
        """Read all queues from end to end, and compare with what was promised."""
        await self.settle()
        assert self._broker is not None
        self.oracle.log_begins_at(self._broker.context.store.log.min_offset)
        found: dict[Queue, dict[int, MessageId]] = {}
        for topic in TOPICS:
            for queue_id in range(QUEUE_COUNT):
                queue = Queue(topic, queue_id)
                header = QueueBoundRequest(topic=topic, queue_id=queue_id)
                await eventually(self._is_all_readable)
                begin = await self.order(RequestCode.GET_MIN_OFFSET, header)
                if begin.code == ResponseCode.SUCCESS:
                    self.oracle.begins_at(queue, int(begin.ext_fields["offset"]))
                found[queue] = await self._read(queue, int(begin.ext_fields.get("offset", 0)))
        self.oracle.finish(found)
        assert not self.oracle.violations, dict(self.oracle.examples)
        emptied = {(topic, queue_id) for (topic, queue_id), held in found.items() if not held}
        assert await asyncio.to_thread(self._problems, emptied) == []

    def _problems(self, emptied: Collection[QueueKey]) -> list[Finding]:
        """Return what is wrong with the files, though a broker is writing them."""
        layout = find_store(Path(self._settings["storePathRootDir"]), sizes=SIZES)
        levels = DelayLevels.parse(DEFAULT_DELAY_LEVELS)
        return problems_in(layout, levels, emptied=emptied)

    def _is_all_readable(self) -> bool:
        """Whether nothing waits for the disk, or to be committed, any more."""
        assert self._broker is not None
        self._clock.advance(COMMIT_MS)
        self._broker.context.dispatch()
        store = self._broker.context.store
        return store.log.readable_end == store.log.end_offset and not store.dispatcher.waiting

    async def _read(self, queue: Queue, offset: int) -> dict[int, MessageId]:
        found = {}
        while True:
            more: dict[str, Any] = {"queue_id": queue.queue_id, "queue_offset": offset}
            answer = await self.order(
                RequestCode.PULL_MESSAGE, pull_header(queue.topic, suspend_timeout_millis=0, **more)
            )
            for record in records_of(answer.body) if answer.code == ResponseCode.SUCCESS else ():
                found[record.queue_offset] = MessageId.parse(bytes(record.body).decode())
            following = int(answer.ext_fields.get("nextBeginOffset", 0))
            if following <= offset:
                return found
            offset = following


def _assert_done(answer: Command) -> None:
    assert answer.code == ResponseCode.SUCCESS, answer
