"""The C++ client compresses a batch as a whole; what is stored are its messages.

It sends code 10 with ``batch=1``.  Java's broker reads that as no batch and stores the list as one
message; told ``batch=true``, it fails with an ArrayIndexOutOfBoundsException.
"""

from pathlib import Path
from typing import Any

import pytest

from flintmq.format.compression import CompressionType, compress
from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.sys_flag import COMPRESSED
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers.codec import Header
from flintmq.format.wire.headers.send import SendMessageRequest
from tests.kits.broker.broker_kit import Wire, send_header, site

ITEMS = [
    BatchItem(flag=n, body=b"%03d" % n + b"x" * 125, properties=b"KEYS\x01k%d\x02" % n)
    for n in range(22)
]
PLAIN = encode_batch(ITEMS)
ZLIB = compress(PLAIN, CompressionType.ZLIB)


def header_of(code: int, **more: Any) -> Header:
    header = send_header("orders", batch=True, **more)
    if code != RequestCode.SEND_MESSAGE:
        return header
    return SendMessageRequest(
        **{name: getattr(header, name) for name in header.__dataclass_fields__}
    )


async def send(wire: Wire, body: bytes, *, code: int, sys_flag: int) -> Command:
    return await wire.call(code, header_of(code, sys_flag=sys_flag), body)


@pytest.mark.parametrize("code", [10, 310, 320])
@pytest.mark.parametrize("bits", [0, *CompressionType])
async def test_its_messages_are_stored_as_if_they_had_come_plain(
    tmp_path: Path, code: int, bits: int
) -> None:
    body = compress(PLAIN, CompressionType(bits or CompressionType.ZLIB))

    async with site(tmp_path) as here:
        wire = await here.client()
        # The topic is there before: then sends are gathered.
        await wire.send("orders", queue_id=1)
        answer = await send(wire, body, code=code, sys_flag=COMPRESSED | bits)
        found = await wire.pull("orders")
    assert answer.code == ResponseCode.SUCCESS, answer
    assert answer.ext_fields["msgId"].split(",") == [one.message_id for one in found]
    assert [(one.flag, one.body) for one in found] == [(one.flag, one.body) for one in ITEMS]
    assert [one.properties["KEYS"] for one in found] == [f"k{n}" for n in range(len(ITEMS))]
    assert {one.sys_flag for one in found} == {0}


async def test_items_that_are_compressed_one_by_one_keep_their_flag(tmp_path: Path) -> None:
    packed = [one._replace(body=compress(one.body, CompressionType.ZLIB)) for one in ITEMS]

    async with site(tmp_path) as here:
        wire = await here.client()
        body = encode_batch(packed)
        answer = await send(wire, body, code=RequestCode.SEND_MESSAGE, sys_flag=COMPRESSED)
        found = await wire.pull("orders")
    assert answer.code == ResponseCode.SUCCESS, answer
    assert [one.body for one in found] == [one.body for one in packed]
    assert {one.sys_flag for one in found} == {COMPRESSED}


@pytest.mark.parametrize(
    ("body", "bits", "words"),
    [
        (ZLIB[:-6], 0, "cut off"),
        (ZLIB[:40] + bytes(20) + ZLIB[60:], 0, "damaged ZLIB data"),
        (ZLIB, CompressionType.ZSTD, "damaged ZSTD data"),
        (ZLIB, 0x700, "unknown compression type"),
        (compress(bytes(4001), CompressionType.ZLIB), 0, "more than 4000 bytes"),
        (compress(b"no items at all, only words", CompressionType.ZLIB), 0, "left"),
    ],
    ids=["cut off", "damaged", "another codec", "no codec", "too large", "no items"],
)
async def test_what_cannot_be_unpacked_is_refused_and_nothing_is_stored(
    tmp_path: Path, body: bytes, bits: int, words: str
) -> None:
    async with site(tmp_path, maxMessageSize=4000) as here:
        wire = await here.client()
        code = RequestCode.SEND_MESSAGE
        answer = await send(wire, body, code=code, sys_flag=COMPRESSED | bits)
        found = await wire.pull("orders")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert words in (answer.remark or "")
    assert found == []
