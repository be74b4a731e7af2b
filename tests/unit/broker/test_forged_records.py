"""Bytes in the body of a message that look like a record are none, whatever they claim."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from flintmq.format.java import string_hash
from flintmq.format.message_id import decode_offset_id
from flintmq.format.properties import encode_properties
from flintmq.format.stored.record_encoding import encode_record
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.query import QueryMessageRequest, ViewMessageRequest
from flintmq.format.wire.headers.send_back import SendBackRequest
from flintmq.format.wire.headers.transaction import EndTransactionRequest
from flintmq.model.property_names import PRODUCER_GROUP, REAL_QID, REAL_TOPIC
from flintmq.model.topics import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from flintmq.store.reading.entered_records import is_entered
from tests.kits.broker.access_kit import ADMIN, USER, client_of, guarded_site
from tests.kits.broker.broker_kit import Site, Wire, site

HOST: Final = bytes(8)
PREPARED: Final = 4
ROLLBACK: Final = 12
MARK: Final = b"~~~~"


def forged(topic: str, offset: int, body: bytes, properties: Mapping[str, str]) -> bytes:
    """Return what looks like the first record of a topic, if it stands at an offset."""
    return encode_record(
        *(topic.encode(), 0, 0, 0, offset, 0, 1, HOST, 1, HOST, 0, 0),
        *(body, encode_properties(properties)),
    )


async def plant(here: Site, wire: Wire, topic: str, properties: Mapping[str, str]) -> int:
    """Have a message stored that has a forged record in its body; return where that stands."""
    log = here.broker.context.store.log
    sent = await wire.send("orders", MARK)
    probe = decode_offset_id(sent.msg_id)[1]
    with here.broker.context.store.select(probe) as piece:  # type: ignore[union-attr]
        before = bytes(piece.view).index(MARK)
    at = log.end_offset + before
    await wire.send("orders", forged(topic, at, b"planted", properties))
    assert here.broker.context.store.look(at) is not None
    return at


async def test_no_transaction_of_others_is_ended_by_a_forged_half_message(tmp_path: Path) -> None:
    async with guarded_site(tmp_path) as here, client_of(here, ADMIN) as owner:
        context = here.broker.context
        context.topics.ensure("hidden", 4)
        half = {"TRAN_MSG": "true", "PGROUP": "theirs"}
        await owner.send("hidden", b"half", sys_flag=PREPARED, properties=half)
        assert context.store.max_offset_in_queue(TRANS_HALF_TOPIC, 0) == 1
        async with client_of(here, USER) as wire:
            claims = {PRODUCER_GROUP: "mine", REAL_TOPIC: "orders", REAL_QID: "0"}
            at = await plant(here, wire, TRANS_HALF_TOPIC, claims)
            header = EndTransactionRequest(
                producer_group="mine",
                tran_state_table_offset=0,
                commit_log_offset=at,
                commit_or_rollback=ROLLBACK,
                msg_id="U1",
            )
            answer = await wire.call(RequestCode.END_TRANSACTION, header)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert context.store.max_offset_in_queue(TRANS_OP_HALF_TOPIC, 0) == 0


async def test_no_message_is_viewed_or_given_back_by_a_forged_record(tmp_path: Path) -> None:
    async with guarded_site(tmp_path) as here, client_of(here, USER) as wire:
        here.broker.context.topics.ensure("orders", 4)
        at = await plant(here, wire, "orders", {})
        viewed = await wire.call(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequest(offset=at))
        assert viewed.code == ResponseCode.SYSTEM_ERROR
        assert not viewed.body
        back = SendBackRequest(offset=at, group="consumers", delay_level=0)
        answer = await wire.call(RequestCode.CONSUMER_SEND_MSG_BACK, back)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        # A real one is there for its reader.
        sent = await wire.send("orders", b"real")
        offset = decode_offset_id(sent.msg_id)[1]
        viewed = await wire.call(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequest(offset=offset))
        assert viewed.code == ResponseCode.SUCCESS
        assert b"real" in viewed.body
        back = SendBackRequest(offset=offset, group="consumers", delay_level=0)
        assert (await wire.call(RequestCode.CONSUMER_SEND_MSG_BACK, back)).code == 0


@pytest.mark.parametrize("is_dispatched", [True, False])
async def test_a_record_is_one_before_and_after_its_queue_has_it(
    tmp_path: Path, is_dispatched: bool
) -> None:
    async with site(tmp_path) as here:
        wire, store = await here.client(), here.broker.context.store
        await wire.send("orders", b"first")
        at = await plant(here, wire, "orders", {})
        sent = await wire.send("orders", b"last")
        store.dispatch()
        dispatched = store.dispatcher.offset if is_dispatched else store.log.min_offset
        for offset, is_one in ((0, True), (at, False), (decode_offset_id(sent.msg_id)[1], True)):
            record = store.look(offset)
            assert record is not None
            assert store.is_entered(record) is is_one
            found = is_entered(record, queues=store.queues, log=store.log, dispatched=dispatched)
            assert found is is_one


def key_with_the_hash_of(topic: str, other: str) -> str:
    """Return a key that the index of a topic has under the hash of another entry."""
    length = 7
    place = [31 ** (length - 1 - number) for number in range(length)]
    start = string_hash(f"{topic}#") * 31**length + sum(ord("!") * one for one in place)
    rest = (string_hash(other) - start) % (1 << 32)
    return "".join(chr(ord("!") + rest // one % 31) for one in place)


async def test_no_message_of_another_topic_is_found_by_a_key_with_the_same_hash(
    tmp_path: Path,
) -> None:
    key = key_with_the_hash_of("orders", "hidden#secret")
    assert string_hash(f"orders#{key}") == string_hash("hidden#secret")
    query = QueryMessageRequest(
        topic="orders", key=key, max_num=32, begin_timestamp=0, end_timestamp=1 << 60
    )
    async with guarded_site(tmp_path) as here, client_of(here, ADMIN) as owner:
        for topic in ("hidden", "orders"):
            here.broker.context.topics.ensure(topic, 4)
        await owner.send("hidden", b"hidden body", properties={"KEYS": "secret"})
        async with client_of(here, USER) as wire:
            answer = await wire.call(RequestCode.QUERY_MESSAGE, query)
            assert answer.code == ResponseCode.QUERY_NOT_FOUND
            await wire.send("orders", b"own body", properties={"KEYS": key})
            answer = await wire.call(RequestCode.QUERY_MESSAGE, query)
        assert answer.code == ResponseCode.SUCCESS
        assert b"own body" in answer.body
        assert b"hidden body" not in answer.body
