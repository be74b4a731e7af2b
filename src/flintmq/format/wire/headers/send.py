"""Headers of sending: single messages, batches, replies."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from flintmq.format.wire.headers.codec import Header, Int32, Int64, header
from flintmq.format.wire.headers.field_codecs import SMALL


@header
class SendMessageRequest(Header, wire_names={"broker_name": "bname"}):
    """Asks to store a message or, if ``batch``, several.

    A negative queue id leaves the choice of a queue to the broker.  A batch is known by its flag
    alone: C++ clients send batches under the codes of single messages.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    batch: bool = False
    broker_name: str | None = None


_V2_NAMES: Final = {
    "producer_group": "a",
    "topic": "b",
    "default_topic": "c",
    "default_topic_queue_nums": "d",
    "queue_id": "e",
    "sys_flag": "f",
    "born_timestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsume_times": "j",
    "unit_mode": "k",
    "max_reconsume_times": "l",
    "batch": "m",
    "broker_name": "n",
}


@header
class SendMessageRequestV2(SendMessageRequest, wire_names=_V2_NAMES):
    """The same request with names of one letter, as codes 310, 320 and 325 carry it."""


@header
class SendAnswer(Header, wire_names={"region": "MSG_REGION", "trace_on": "TRACE_ON"}):
    """What every answer to a send carries, refusals included."""

    region: str | None = None
    trace_on: bool | None = None


@header
class SendMessageResponse(SendAnswer):
    """Where a message was stored; for a batch the ids stand with commas between them."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None


class SendReceipt(NamedTuple):
    """What a sender wants to know from a `SendMessageResponse`."""

    msg_id: str
    queue_id: int
    queue_offset: int
    region: str | None
    trace_on: bool | None


def read_send_receipt(ext_fields: Mapping[str, str]) -> SendReceipt:
    """Return where a message was stored; a header that is wrong raises what `decode` does.

    Nearly all answers look alike: those are read in a third of the time.
    """
    get = ext_fields.get
    msg_id, queue_id, offset = get("msgId"), get("queueId", ""), get("queueOffset", "")
    trace_on = get("TRACE_ON")
    if (
        msg_id is not None
        and (trace_on == "true" or trace_on is None)
        and queue_id in SMALL
        and len(offset) <= _PLAIN_DIGITS_MAX
        and offset.isdecimal()
        and offset.isascii()
    ):
        is_traced = None if trace_on is None else True
        fields = (msg_id, SMALL[queue_id], int(offset), get("MSG_REGION"), is_traced)
        # Its own constructor takes twice as long.
        return tuple.__new__(SendReceipt, fields)
    read = SendMessageResponse.decode(ext_fields)
    return SendReceipt(read.msg_id, read.queue_id, read.queue_offset, read.region, read.trace_on)


_PLAIN_DIGITS_MAX: Final = 18
"""Digits of a number that fits 64 bits whatever they are."""
