"""Pulls that wait take a bounded amount of memory, and are answered as their peers read."""

import asyncio
import gc
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from flintmq.broker.filtering.tag_filter import TagFilter
from flintmq.broker.waiting import awaited_queue, held_pulls
from flintmq.broker.waiting.held_pull import PULL_SIZE, HeldPull
from flintmq.format.java import string_hash
from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from tests.kits.broker.broker_kit import eventually, pull_header, send_header, site
from tests.kits.broker.remoting_kit import RawClient

PULL_COUNT: Final = 60
LARGE: Final = 900 << 10
SUSPEND: Final = 6
"""The pull brings its subscription and may wait."""


def pulls(count: int, **more: Any) -> list[Command]:
    header = pull_header("T", **({"queue_offset": 1, "sys_flag": SUSPEND} | more))
    return [
        Command(code=RequestCode.PULL_MESSAGE, opaque=number, ext_fields=header.encode())
        for number in range(count)
    ]


async def test_held_pulls_of_one_peer_are_answered_as_it_reads(tmp_path: Path) -> None:
    async with site(tmp_path) as here, RawClient.connect(here.broker.port) as peer:
        good = await here.client()
        await good.send("T")
        await peer.send(*pulls(PULL_COUNT))
        held, account = here.broker.context.held, here.broker.server.unread_answers
        assert account is not None
        await eventually(lambda: held.count == PULL_COUNT)
        await good.send("T", bytes(LARGE))
        pause_size = here.broker.server.limits.write_pause_size
        # Some were answered, the others wait until the first answers were read.
        assert 0 < held.count < PULL_COUNT
        assert account.peak_size < pause_size + 2 * LARGE
        answers = [await peer.receive() for _ in range(PULL_COUNT)]
        assert sorted(answer.opaque for answer in answers) == list(range(PULL_COUNT))
        assert all(len(answer.body) > LARGE for answer in answers)
        assert held.count == held.size == 0
        assert account.peak_size < pause_size + 2 * LARGE


async def test_a_sender_with_held_pulls_of_its_own_is_not_swamped(tmp_path: Path) -> None:
    async with site(tmp_path) as here, RawClient.connect(here.broker.port) as peer:
        good = await here.client()
        sent = await good.send("T")
        assert sent.queue_offset == 0
        await peer.send(*pulls(PULL_COUNT))
        held, account = here.broker.context.held, here.broker.server.unread_answers
        assert account is not None
        await eventually(lambda: held.count == PULL_COUNT)
        # Its own message wakes its own pulls, within the read that brings the message.
        send = Command(
            code=RequestCode.SEND_MESSAGE_V2,
            opaque=PULL_COUNT,
            ext_fields=send_header("T").encode(),
            body=bytes(LARGE),
        )
        await peer.send(send)
        answers = [await peer.receive() for _ in range(PULL_COUNT + 1)]
        assert sorted(answer.opaque for answer in answers) == list(range(PULL_COUNT + 1))
        limits = here.broker.server.limits
        assert account.peak_size < limits.write_pause_size + 2 * LARGE


async def test_a_pull_that_cannot_be_answered_concerns_nobody_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with site(tmp_path) as here, RawClient.connect(here.broker.port) as peer:
        good = await here.client()
        await good.send("T")
        await peer.send(*pulls(3))
        held = here.broker.context.held
        await eventually(lambda: held.count == 3)

        def broken() -> None:
            raise RuntimeError("no answer")

        (own,) = [next(iter(one)) for one in held._by_queue.values()]  # The one that came first.
        own.answer = broken
        assert (await good.send("T", b"for all")).queue_offset == 1
        assert [(await peer.receive()).opaque for _ in range(2)] == [1, 2]
        assert held.count == 0
    assert [one.exc_info is not None for one in caplog.records] == [True]


async def test_answered_pulls_leave_nothing_behind(tmp_path: Path) -> None:
    async with site(tmp_path) as here, RawClient.connect(here.broker.port) as peer:
        good = await here.client()
        held = here.broker.context.held
        await good.send("T")
        for offset in range(1, 31):
            await peer.send(*pulls(20, queue_offset=offset, suspend_timeout_millis=100_000))
            await eventually(lambda: held.count == 20)
            await good.send("T", b"next")
            for _ in range(20):
                await peer.receive()
        # Their time would not be up for a minute and a half.
        assert len(held._deadlines) <= 2 * held.count + 64
        assert held.count == held.size == 0


async def test_the_pulls_of_a_connection_go_with_it(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        good = await here.client()
        await good.send("T")
        held = here.broker.context.held
        async with RawClient.connect(here.broker.port) as peer:
            await peer.send(*pulls(10))
            await eventually(lambda: held.count == 10)
        await eventually(lambda: held.count == 0)
        assert held.size == 0


async def test_what_a_held_pull_brought_is_not_kept(tmp_path: Path) -> None:
    async with site(tmp_path) as here, RawClient.connect(here.broker.port) as peer:
        good = await here.client()
        await good.send("T")
        held = here.broker.context.held
        for one in pulls(3):
            one.body = bytes(1 << 20)
            one.ext_fields["nobodyAsked"] = "x" * (1 << 20)
            await peer.send(one)
            one.ext_fields.clear()
        await eventually(lambda: held.count == 3)
        assert held.size < 8 << 10
        gc.collect()
        kept = [one for one in gc.get_objects() if isinstance(one, dict) and "nobodyAsked" in one]
        # A count of the words in this file knows the name too.
        assert not [one for one in kept if isinstance(one["nobodyAsked"], str)]


@pytest.mark.parametrize(
    "limit",
    ["HELD_COUNT_MAX", "HELD_BY_ONE_COUNT_MAX", "HELD_ON_ONE_COUNT_MAX", "HELD_SIZE_MAX"],
)
async def test_one_pull_too_many_is_answered_at_once(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_size = limit == "HELD_SIZE_MAX"
    monkeypatch.setattr(held_pulls, limit, 5 * (PULL_SIZE + 1) if is_size else 5)
    async with site(tmp_path) as here, RawClient.connect(here.broker.port) as peer:
        good = await here.client()
        await good.send("T")
        await peer.send(*pulls(6))
        answer = await peer.receive()
        assert (answer.opaque, answer.code) == (5, ResponseCode.PULL_NOT_FOUND)
        assert here.broker.context.held.count == 5


async def test_more_pulls_than_one_turn_answers_are_all_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_pulls, "WAKE_COUNT_MAX", 4)
    async with site(tmp_path) as here, RawClient.connect(here.broker.port) as peer:
        good = await here.client()
        await good.send("T")
        await peer.send(*pulls(30))
        await eventually(lambda: here.broker.context.held.count == 30)
        await good.send("T", b"for all")
        answers = [await peer.receive() for _ in range(30)]
        assert sorted(answer.opaque for answer in answers) == list(range(30))
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}


async def test_messages_of_queues_that_nobody_waits_for_are_not_told(tmp_path: Path) -> None:
    async with site(tmp_path) as here, RawClient.connect(here.broker.port) as peer:
        good, dispatcher = await here.client(), here.broker.context.store.dispatcher

        async def send(queue_id: int) -> None:
            header = send_header("T", queue_id=queue_id)
            assert (await good.call(RequestCode.SEND_MESSAGE_V2, header, b"x")).code == 0

        for queue_id in (0, 1):  # The first message of a queue goes the ordinary way.
            await send(queue_id)
        await peer.send(*pulls(1))
        await eventually(lambda: here.broker.context.held.count == 1)
        told: list[int] = []
        listener = dispatcher.on_arrival
        assert listener is not None

        def noted(topic: str, queue_id: int, *more: Any) -> None:
            told.append(queue_id)
            listener(topic, queue_id, *more)

        dispatcher.on_arrival = noted  # type: ignore[assignment]  # It passes all on.
        await send(1)
        assert told == []
        await send(0)
        assert told == [0]
        assert (await peer.receive()).code == ResponseCode.SUCCESS


class CountingFilter(TagFilter):
    """Counts how often it is asked."""

    def __init__(self, codes: Collection[int] | None, *, matches: bool = False) -> None:
        self._asked_codes = codes
        self._matches = matches
        self.asked = 0

    @property
    def arrival_codes(self) -> Collection[int] | None:  # type: ignore[override]
        return self._asked_codes

    def matches_arrival(
        self, tags_code: int, read_properties: Callable[[], Mapping[str, str]]
    ) -> bool:
        self.asked += 1
        return self._matches


class FakePeer:
    """A peer that reads everything at once."""

    is_closed = False
    has_room = True


def held_pull(chosen: Any, answered: list[Any], peer: FakePeer) -> HeldPull:
    def answer() -> None:
        answered.append(chosen)

    return HeldPull(("T", 0), 1, chosen, peer, answer)  # type: ignore[arg-type]  # No real peer.


async def send_batch(wire: Any, *tags: str) -> None:
    items = [BatchItem(0, b"x", f"TAGS\x01{tag}\x02".encode()) for tag in tags]
    header = send_header("T", batch=True)
    answer = await wire.call(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch(items))
    assert answer.code == ResponseCode.SUCCESS, answer


async def test_pulls_are_found_by_tags_and_not_compared_with_each_message(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire, held, answered, peer = (
            await here.client(),
            here.broker.context.held,
            list[Any](),
            FakePeer(),
        )
        await wire.send("T")
        filters = [CountingFilter({string_hash(f"tag{number % 3}")}) for number in range(300)]
        pulls = [held_pull(chosen, answered, peer) for chosen in filters]
        for pull in pulls:
            assert held.hold(pull, 60_000)
        told: list[int] = []
        arrived = held._arrived

        def noted(topic: str, queue_id: int, number: int, *more: Any) -> None:
            told.append(number)
            arrived(topic, queue_id, number, *more)

        here.broker.context.store.dispatcher.on_arrival = noted  # type: ignore[assignment]
        await send_batch(wire, *["other"] * 100, "tag1", *["another"] * 100, "tag1")
        await eventually(lambda: held.count == 200)
        # One message of each tag is told: the last one.
        assert sorted(told) == [101, 202, 203]
        assert answered == filters[1::3]
        await send_batch(wire, "tag0", "tag2")
        await eventually(lambda: held.count == 0)
        assert sum(chosen.asked for chosen in filters) == 0
        assert not held._awaited


@pytest.mark.parametrize("codes", [None, range(awaited_queue.CODES_MAX + 1)], ids=["sql", "many"])
async def test_filters_are_asked_a_bounded_number_of_times_and_then_read_for_themselves(
    codes: Collection[int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaited_queue, "JUDGED_COUNT_MAX", 50)
    async with site(tmp_path) as here:
        wire, held, answered, peer = (
            await here.client(),
            here.broker.context.held,
            list[Any](),
            FakePeer(),
        )
        await wire.send("T")
        filters = [CountingFilter(codes) for _ in range(4)]
        for chosen in filters * 5:
            assert held.hold(held_pull(chosen, answered, peer), 60_000)
        await send_batch(wire, *["other"] * 10)
        # Members of a group share their filter, which is asked once for all of them.
        assert sum(chosen.asked for chosen in filters) == 40
        assert held.count == 20
        await send_batch(wire, *["other"] * 40)
        assert sum(chosen.asked for chosen in filters) == 90
        await eventually(lambda: held.count == 0)
        assert len(answered) == 20


async def test_pulls_are_answered_for_a_slice_of_a_turn(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire, held, answered, peer = (
            await here.client(),
            here.broker.context.held,
            list[Any](),
            FakePeer(),
        )
        await wire.send("T")
        clock = 0.0

        def answer() -> None:
            nonlocal clock
            answered.append(clock)
            clock += 0.0015  # Each reads for as long as that.

        held._now = lambda: clock
        for _ in range(7):
            pull = HeldPull(("T", 0), 1, None, peer, answer)  # type: ignore[arg-type]
            assert held.hold(pull, 60_000)
        here.broker.context.store.dispatcher.on_arrival = held._arrived
        held._arrived("T", 0, 2, 0, 0, None, dict)
        in_a_turn = []
        while held.count:
            before = len(answered)
            if not before:
                held.wake()
            else:
                await asyncio.sleep(0)
            in_a_turn.append(len(answered) - before)
        assert max(in_a_turn) == 2
        assert len(answered) == 7
