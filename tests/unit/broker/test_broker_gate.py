"""No request of a broker is handled before it was admitted, whichever way it goes."""

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from flintmq.broker.context import BrokerContext
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import ONE_WAY_FLAG
from flintmq.format.wire.frame import HeaderType
from tests.kits.broker.broker_kit import eventually, site
from tests.kits.broker.gate_kit import (
    ADMITTED,
    GATHERED,
    PROCESSED,
    REFUSAL,
    WatchedGate,
    all_requests,
    request_of,
)

VIEWS: Final = ("commitlog", "consumequeue", "index")
TABLES: Final = ("topics", "groups", "offsets", "consumers", "producers", "locks", "live_config")


def send(text: str = "KEYS\x01k\x02") -> dict[str, Any]:
    fields = {"a": "pg", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1"}
    fields |= {"h": "0", "i": text, "j": "0", "k": "false", "m": "false"}
    return {"code": int(RequestCode.SEND_MESSAGE_V2), "ext_fields": fields, "body": b"x"}


def pull(offset: int) -> dict[str, Any]:
    one = request_of(RequestCode.PULL_MESSAGE)
    one["ext_fields"] |= {"queueOffset": str(offset), "subscription": "*", "sysFlag": "5"}
    one["ext_fields"]["commitOffset"] = str(offset)
    return one


def state_of(context: BrokerContext, root: Path) -> dict[str, Any]:
    """Return all that a request could have changed."""
    # The next file of the log is made ahead of its need; it holds nothing.
    state: dict[str, Any] = {
        str(path.relative_to(root)): content
        for view in VIEWS
        for path in sorted((root / view).rglob("*"))
        if path.is_file() and (content := path.read_bytes().rstrip(b"\0"))
    }
    state |= {name: repr(vars(getattr(context, name))) for name in TABLES}
    return state | {"held": context.held.count, "waiting": context.puts.waiting_count}


async def first_stored(context: BrokerContext) -> None:
    """Wait until the first sends have their topic, and their file of the log."""
    await eventually(lambda: context.topics.keeper.is_saved and not context.late_sends.count)


@pytest.mark.parametrize("header_type", HeaderType)
async def test_every_request_is_admitted_once_and_first(
    header_type: HeaderType, tmp_path: Path
) -> None:
    async with site(tmp_path) as here:
        gate = WatchedGate(here.broker.server)
        requests = all_requests(gate.codes)
        assert len(requests) == 4 * len(gate.codes) > 200
        for one in requests:
            (way,) = gate.ask(one, header_type=header_type)
            # Without its fields a request may end between the gate and its processor.
            ends = {(ADMITTED, PROCESSED), (ADMITTED, GATHERED), (ADMITTED,)}
            assert tuple(way) in (ends if not one["ext_fields"] else ends - {(ADMITTED,)}), one
        together = gate.ask(*requests, header_type=header_type)
        assert [way[:1] for way in together] == [[ADMITTED]] * len(requests)
        assert {way.count(ADMITTED) for way in together} == {1}
        await asyncio.gather(*gate.connection.tasks, return_exceptions=True)


@pytest.mark.parametrize("header_type", HeaderType)
async def test_requests_on_the_bulk_way_are_admitted_once(
    header_type: HeaderType, tmp_path: Path
) -> None:
    async with site(tmp_path) as here:
        gate = WatchedGate(here.broker.server)
        assert gate.bulk_codes == {11, 310, 320}
        gate.ask(send(), send(), header_type=header_type)
        await first_stored(here.broker.context)
        ways = gate.ask(
            *[send()] * 20,
            send("DELAY\x011\x02"),
            {**send(), "flag": ONE_WAY_FLAG},
            pull(0),
            pull(99),
            header_type=header_type,
        )
        alone, together = [ADMITTED, PROCESSED], [ADMITTED, GATHERED]
        assert ways == [
            *[together] * 20,
            # It looked plain and was gathered; its properties say that it is not.
            [*together, PROCESSED],
            alone,
            together,
            alone,
        ]


@pytest.mark.parametrize("header_type", HeaderType)
async def test_a_refused_request_is_answered_and_leaves_nothing(
    header_type: HeaderType, tmp_path: Path
) -> None:
    async with site(tmp_path, flushConsumerOffsetInterval=1_000_000) as here:
        gate = WatchedGate(here.broker.server)
        # Sends and pulls of these kinds are known, so they would be handled in bulk.
        gate.ask(*[send()] * 3, pull(0), header_type=header_type)
        context = here.broker.context
        await first_stored(context)
        gate.answers()
        before = state_of(context, tmp_path)
        requests = [*all_requests(gate.codes), *[send()] * 20, pull(0), pull(99)]
        gate.refuses = True
        ways = gate.ask(*requests, header_type=header_type)
        assert ways == [[ADMITTED]] * len(requests)
        assert state_of(context, tmp_path) == before
        answers = gate.answers()
        assert len(answers) == sum(not one.get("flag") for one in requests)
        assert {one.code for one in answers} == {ResponseCode.NO_PERMISSION}
        assert {one.remark for one in answers} == {REFUSAL}
        assert {one.serialize_type for one in answers} == {header_type}
        assert not gate.connection.tasks
        # The same requests do leave something when they are let in.
        gate.refuses = False
        gate.ask(*requests, header_type=header_type)
        after = state_of(context, tmp_path)
        assert {name for name in TABLES if after[name] != before[name]} >= {"topics", "offsets"}
        assert after["commitlog/00000000000000000000"] != before["commitlog/00000000000000000000"]
        await asyncio.gather(*gate.connection.tasks, return_exceptions=True)


async def test_what_was_gathered_is_stored_although_the_next_one_is_refused(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        gate = WatchedGate(here.broker.server)
        gate.ask(send(), header_type=HeaderType.JSON)
        await first_stored(here.broker.context)
        gate.answers()

        def refuse_late(connection: Any, request: Any) -> None:
            gate.refuses = request.body == b"late"
            admit(connection, request)

        requests = here.broker.server.requests
        admit, requests.admit = requests.admit, refuse_late
        late = {**send(), "body": b"late"}
        gate.ask(send(), send(), late, send(), header_type=HeaderType.JSON)
        codes = [one.code for one in gate.answers()]
        assert codes == [0, 0, ResponseCode.NO_PERMISSION, 0]
        assert here.broker.context.store.max_offset_in_queue("T", 0) == 4


async def test_an_unknown_code_is_admitted_too(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        gate = WatchedGate(here.broker.server)
        assert gate.ask(request_of(9999), header_type=HeaderType.JSON) == [[ADMITTED]]
        (answer,) = gate.answers()
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
