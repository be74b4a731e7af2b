"""Which sends are gathered to be stored together, and which are not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flintmq.broker.hosts import packed_host
from flintmq.broker.sending import send_fast_path
from flintmq.broker.sending.send_fast_path import PART_COUNT_MIN
from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.stored.consume_queue import UNIT_SIZE
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command, decode_command, encode_command
from flintmq.format.wire.frame import FrameDecoder, HeaderType
from flintmq.model.property_names import DELAY
from flintmq.store.append_group import encoder_choice
from flintmq.store.append_group.sends import AppendGroup, Sends
from flintmq.store.appending.group_appender import NotAppended
from tests.kits.broker.broker_kit import START_MS, Site, Wire, run, send_header, site
from tests.kits.broker.hostile_peer import MemoryTransport, fed_connection


class Watched:
    """A broker whose append groups are counted."""

    def __init__(self, here: Site, wire: Wire) -> None:
        self.site = here
        self.wire = wire
        self.context = here.broker.context
        self.counts: list[int] = []
        append_group = self.context.store.append_group

        def counted(sends: Sends, store_host: bytes) -> AppendGroup | NotAppended:
            stored = append_group(sends, store_host)
            self.counts.append(0 if isinstance(stored, NotAppended) else stored.message_count)
            return stored

        self.context.store.append_group = counted  # type: ignore[method-assign]

    async def send(self, text: str = "", topic: str = "T", **more: Any) -> int:
        """Send one message and return the code of the answer."""
        header = replace(send_header(topic, **more), properties=text)
        answer = await self.wire.call(RequestCode.SEND_MESSAGE_V2, header, b"body")
        return answer.code


@asynccontextmanager
async def watched(root: Path, **settings: Any) -> AsyncIterator[Watched]:
    async with site(root, **settings) as here:
        wire = await here.client()
        # The topic is made, and its queue and index have begun.
        await wire.send("T", properties={"KEYS": "k"})
        yield Watched(here, wire)


def test_a_plain_send_is_gathered(tmp_path: Path) -> None:
    async def check() -> None:
        async with watched(tmp_path) as broker:
            assert await broker.send("KEYS\x01k\x02TAGS\x01a\x02WAIT\x01true\x02") == 0
            assert await broker.send() == 0
            assert broker.counts == [1, 1]
            (_, stored, _) = await broker.wire.pull("T", max_msg_nums=32)
            assert stored.properties == {"KEYS": "k", "TAGS": "a", "CLUSTER": "TestCluster"}

    run(check())


@pytest.mark.parametrize(
    "text",
    [
        "DELAY\x011\x02",
        "TRAN_MSG\x01true\x02",
        "INNER_MULTI_DISPATCH\x01a\x02",
        "CLUSTER\x01mine\x02",
        "a\x01b\x02a\x01c\x02",
        "a\x01\x02",
        "\x01b\x02",
        "alone\x02",
        "alone\x02b\x01c\x01d\x02",
    ],
)
def test_properties_that_mean_more_are_looked_at_one_by_one(tmp_path: Path, text: str) -> None:
    async def check() -> None:
        async with watched(tmp_path) as broker:
            assert await broker.send(text) == 0
            assert not any(broker.counts)

    run(check())


def test_a_delayed_message_waits_although_others_like_it_were_gathered(tmp_path: Path) -> None:
    async def check() -> None:
        async with watched(tmp_path) as broker:
            await broker.send("a\x01b\x02")
            await broker.send(f"{DELAY}\x011\x02")
            assert len(await broker.wire.pull("T", max_msg_nums=32)) == 2

    run(check())


def test_a_send_that_need_not_wait_for_the_disk_is_put_alone(tmp_path: Path) -> None:
    async def check() -> None:
        async with watched(tmp_path, flushDiskType="SYNC_FLUSH") as broker:
            for text in ("", "WAIT\x01true\x02", "KEYS\x01k\x02WAIT\x01true"):
                assert await broker.send(text) == 0
            assert broker.counts == [1, 1, 1]
            for text in ("WAIT\x01false\x02", "WAIT\x01True", "WAIT\x01true\x02XWAIT\x01no\x02"):
                assert await broker.send(text) == 0
            assert broker.counts == [1, 1, 1]

    run(check())


def test_a_topic_that_has_changed_is_checked_again(tmp_path: Path) -> None:
    async def check() -> None:
        async with watched(tmp_path) as broker:
            assert await broker.send(queue_id=3) == 0
            topics = broker.context.topics
            topic = topics.get("T")
            assert topic is not None
            topics.put(replace(topic, read_queue_count=2, write_queue_count=2))
            assert await broker.send(queue_id=3) == ResponseCode.SYSTEM_ERROR
            assert await broker.send(queue_id=1) == 0

    run(check())


def test_settings_that_have_changed_count_at_once(tmp_path: Path) -> None:
    async def check() -> None:
        async with watched(tmp_path) as broker:
            assert await broker.send() == 0
            broker.context.live_config.update(b"brokerPermission=4")
            topics = broker.context.topics
            topic = topics.get("T")
            assert topic is not None
            topics.put(replace(topic, order=True))
            assert await broker.send() == ResponseCode.NO_PERMISSION

    run(check())


def test_a_store_that_takes_nothing_says_so_for_each_message(tmp_path: Path) -> None:
    async def check() -> None:
        async with watched(tmp_path) as broker:
            broker.context.store.appender.closed = True
            assert await broker.send() == ResponseCode.SERVICE_NOT_AVAILABLE
            assert broker.counts == [0]
            broker.context.store.appender.closed = False
            assert await broker.send() == 0

    run(check())


@pytest.mark.parametrize("machine_code", ["true", "false"])
async def test_machine_code_is_loaded_for_many_sends_unless_told_otherwise(
    machine_code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    class Never:
        def __init__(self, load: object, **_: object) -> None:
            self.get = lambda: asked.append(1)

    monkeypatch.setattr(encoder_choice, "LoadOnDemand", Never)

    async with watched(tmp_path, machineCode=machine_code) as broker:
        count = encoder_choice.COMPILED_COUNT_MIN
        assert sends_from(broker, "127.0.0.1", count) == [ResponseCode.SUCCESS] * count
        # One at a time, it would never pay.
        assert await broker.send() == ResponseCode.SUCCESS

    assert len(asked) == (machine_code == "true")


def sends_from(broker: Watched, host: str, count: int, batch: bytes = b"") -> list[int]:
    """Have the broker read some plain sends of a peer at once; return the codes of the answers."""
    connection = fed_connection(broker.site.broker.server)
    transport = MemoryTransport(connection, 5000, host=host)
    connection.connection_made(transport)
    header, code = send_header("T", batch=bool(batch)), RequestCode.SEND_MESSAGE_V2
    if batch:
        code = RequestCode.SEND_BATCH_MESSAGE
    else:
        header = replace(header, properties="KEYS\x01k\x02")
    commands = [
        Command(code=code, opaque=number, ext_fields=header.encode(), body=batch)
        for number in range(count)
    ]
    connection.data_received(b"".join(map(encode_command, commands)))
    answers = FrameDecoder().frames(b"".join(transport.written))
    return [decode_command(frame).code for frame in answers]


async def test_no_more_is_stored_in_one_go_than_a_turn_has_time_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_fast_path, "GROUP_COUNT_MAX", 16)
    async with watched(tmp_path, machineCode="false") as broker:
        assert sends_from(broker, "127.0.0.1", 40) == [0] * 40
        assert broker.counts == [16, 16, 8]


async def test_messages_of_batches_count_as_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_fast_path, "GROUP_COUNT_MAX", 100)
    body = encode_batch([BatchItem(0, b"x" * 100, b"")] * 60)
    async with watched(tmp_path, machineCode="false") as broker:
        assert sends_from(broker, "127.0.0.1", 5, body) == [0] * 5
        assert broker.counts == [120, 120, 60]


async def test_a_group_that_meets_the_end_of_a_file_is_stored_in_parts(tmp_path: Path) -> None:
    units, count = 40, 64
    async with watched(tmp_path, mappedFileSizeConsumeQueue=units * UNIT_SIZE) as broker:
        assert sends_from(broker, "127.0.0.1", count) == [0] * count
        alone = count - sum(broker.counts)
        assert 0 < alone < 2 * PART_COUNT_MIN
        assert len(broker.counts) <= 2 * count // PART_COUNT_MIN
        stored: list[Any] = []
        while len(stored) <= count:
            stored += await broker.wire.pull("T", queue_offset=len(stored), max_msg_nums=32)
        assert [one.queue_offset for one in stored] == list(range(count + 1))
        # In their order, whichever way they went.
        offsets = [one.physical_offset for one in stored]
        assert offsets == sorted(offsets)


@pytest.mark.parametrize("host", ["::1", "::ffff:192.0.2.1", "fe80::1%lo"])
async def test_sends_of_a_peer_of_ipv6_are_gathered_too(tmp_path: Path, host: str) -> None:
    async with watched(tmp_path) as broker:
        assert sends_from(broker, "127.0.0.1", 2) == [0, 0]
        assert sends_from(broker, host, 3) == [0, 0, 0]
        assert broker.counts == [2, 3]
        stored = await broker.wire.pull("T", queue_offset=1, max_msg_nums=32)
        assert [one.born_host for one in stored] == [
            *[packed_host("127.0.0.1", 5000)] * 2,
            *[packed_host(host, 5000)] * 3,
        ]


async def test_sends_of_both_notations_are_gathered_together(tmp_path: Path) -> None:
    async with watched(tmp_path) as broker:
        connection = fed_connection(broker.site.broker.server)
        transport = MemoryTransport(connection, 5000)
        connection.connection_made(transport)
        header = send_header("T")
        frames = [
            encode_command(
                Command(
                    code=RequestCode.SEND_MESSAGE_V2,
                    opaque=number,
                    ext_fields=header.encode(),
                    serialize_type=header_type,
                )
            )
            for number, header_type in enumerate([*HeaderType] * 2)
        ]
        connection.data_received(b"".join(frames))
        answers = [
            decode_command(one) for one in FrameDecoder().frames(b"".join(transport.written))
        ]
        assert [one.serialize_type for one in answers] == [*HeaderType] * 2
        assert [(one.opaque, one.ext_fields["queueOffset"]) for one in answers] == [
            (number, str(number + 1)) for number in range(4)
        ]
        assert broker.counts == [4]


async def test_a_broker_that_accepts_sends_later_refuses_until_then(tmp_path: Path) -> None:
    async with site(tmp_path, startAcceptSendRequestTimeStamp=START_MS + 1000) as here:
        wire = await here.client()
        first = await wire.send_raw("T")
        assert first.code == ResponseCode.SYSTEM_ERROR
        assert "T" not in here.broker.context.topics
        here.clock.advance(1000)
        broker = Watched(here, wire)
        assert [await broker.send() for _ in range(3)] == [0, 0, 0]
        assert sum(broker.counts) == 2


class NeverLoaded:
    """Stands for machine code that is asked for and never comes."""

    asked = 0
    loaded = None

    def __init__(self, load: object, *, ask_count: int = 0, program: str = "") -> None:
        pass

    def get(self) -> None:
        NeverLoaded.asked += 1


@pytest.mark.parametrize(("seconds", "asked"), [(1, 2), (60, 0)])
def test_a_producer_that_sends_alone_and_much_has_machine_code_loaded(
    seconds: int, asked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_fast_path, "LoadOnDemand", NeverLoaded)
    monkeypatch.setattr(send_fast_path, "SHOWN_GROUPS", 4)
    monkeypatch.setattr(NeverLoaded, "asked", 0)

    async def check() -> None:
        async with watched(tmp_path) as broker:
            for _ in range(3):
                for _ in range(4):
                    assert await broker.send() == 0
                broker.site.clock.advance(1000 * seconds)

    run(check())
    assert NeverLoaded.asked == asked
