"""What a frame says, with ids, times and ports taken out: two servers have to say the same.

Everything is turned into nested values whose leaves have a path; what may differ between two runs
of the same server is replaced by the word for it.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from flintmq.format.properties import decode_properties
from flintmq.format.stored.record import Record, decode_record
from flintmq.format.wire.bodies.dialect import loads_body
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command

ANSWERED_WITH_RECORDS: Final = frozenset(
    {RequestCode.PULL_MESSAGE, RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID}
)
SENT_WITH_RECORDS: Final = frozenset(
    {RequestCode.CHECK_TRANSACTION_STATE, RequestCode.CONSUME_MESSAGE_DIRECTLY}
)
OFFSET_ID_LENGTH: Final = 32
PLACING_CODES: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)
"""Their answers tell the id of what they stored."""
TEXT_CODES: Final = frozenset({RequestCode.GET_BROKER_CONFIG, RequestCode.GET_NAMESRV_CONFIG})

TIMES: Final = frozenset(
    {
        "PUSH_REPLY_TIME",
        "bornTimestamp",
        "consumeTimestamp",
        "earliestTime",
        "indexLastUpdateTimestamp",
        "lastConsumeTimestamp",
        "lastTimestamp",
        "lastUpdateTimestamp",
        "maxTimeStamp",
        "minTimeStamp",
        "msgStoreTime",
        "startTimestamp",
        "storeTimestamp",
        "timestamp",
    }
)
RATES: Final = frozenset({"avgpt", "consumeTps", "sum", "tps"})
"""They are sampled by the clock."""
ORDERED_LISTS: Final = frozenset({"queueData"})
IDS: Final = frozenset(
    {
        "ORIGIN_MESSAGE_ID",
        "commitLogOffset",
        "physicOffset",
        "indexLastUpdatePhyoffset",
        "msgId",
        "offsetMsgId",
    }
)
"""An id of the broker is its address and a place in its log.

What lies at which place depends on when delayed messages come due, which nobody can repeat.
"""

UNSET_REMARK: Final = "not set any response code"
"""Java says so beside a success where it forgot to take it back."""
MEANT_REMARK_CODES: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
_JAVA_PLACE: Final = re.compile(r", org\.apache\.rocketmq\.acl\.plain\.\S+\.java:\d+\)$")
_PORT: Final = re.compile(r"(127\.0\.0\.1|192\.0\.2\.2):\d+")


def meaning(command: Command, request_code: int) -> dict[str, Any]:
    """Return what an answer to ``request_code``, or a request with that code, says."""
    return {
        "code": command.code,
        "flag": command.flag,
        "remark": _remark(command),
        "notation": command.serialize_type.name,
        "fields": {name: _field(name, value) for name, value in sorted(command.ext_fields.items())},
        "body": _body(command, request_code),
    }


def _remark(command: Command) -> str | None:
    if command.remark in (None, UNSET_REMARK):
        return None
    if command.remark is not None and "AclException" in command.remark:
        # People look for the words of a denial; behind them is a place in Java's sources.
        return _JAVA_PLACE.sub("", command.remark)
    # Words about a refusal are for people; what counts for programs is its code.
    return command.remark if command.code in MEANT_REMARK_CODES else "WORDS"


def places(command: Command, request_code: int) -> list[int]:
    """Return the places in the log of which a frame tells, in order."""
    found = [
        int(one[-16:], 16)
        for one in command.ext_fields.get("msgId", "").split(",")
        if len(one) == OFFSET_ID_LENGTH and request_code in PLACING_CODES
    ]
    if "commitLogOffset" in command.ext_fields:
        found.append(int(command.ext_fields["commitLogOffset"]))
    if _holds_records(command, request_code):
        found += [record.physical_offset for record in _records(bytes(command.body))]
    return found


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield path, our value and theirs for every leaf that differs."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted({*ours, *theirs}, key=str):
            yield from differences(ours.get(key), theirs.get(key), f"{path}.{key}".lstrip("."))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(one, other, f"{path}.{index}")
    elif ours != theirs:
        yield path, ours, theirs


def _field(name: str, value: str) -> Any:
    if name == "properties":
        return {key: _masked(key, text) for key, text in decode_properties(value.encode()).items()}
    return _masked(name, value)


def _body(command: Command, request_code: int) -> Any:
    body = bytes(command.body)
    if not body:
        return None
    if _holds_records(command, request_code):
        return [_record(record) for record in _records(body)]
    if request_code in TEXT_CODES:
        lines = (line.partition("=") for line in body.decode().splitlines())
        return {key: _masked(key, value) for key, _, value in lines if not key.startswith("#")}
    if body[:1] in (b"{", b"["):
        loaded = loads_body(body)
        if request_code == RequestCode.GET_BROKER_RUNTIME_INFO:
            # All of it is measured, or a path of the machine.
            return {key.partition("_/")[0]: "MEASURED" for key in loaded["table"]}
        return _json(loaded)
    return body


def _holds_records(command: Command, request_code: int) -> bool:
    codes = ANSWERED_WITH_RECORDS if command.is_response else SENT_WITH_RECORDS
    return request_code in codes


def _records(body: bytes) -> Iterator[Record]:
    at = 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "big")
        yield decode_record(body[at : at + size])
        at += size


def _record(record: Record) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "body": bytes(record.body),
        "properties": {key: _masked(key, text) for key, text in record.properties.items()},
    }


def _json(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        # Maps of Java have no order, and their keys may be whole objects with an address in them.
        return {
            _PORT.sub(r"\1:PORT", str(key)): _json(item, str(key)) for key, item in value.items()
        }
    if isinstance(value, list):
        items = [_json(item, name) for item in value]
        if items and all(isinstance(item, dict) and len(item) == 1 for item in items):
            return {key: item for one in items for key, item in one.items()}
        # Most lists are made from such maps.
        return items if name in ORDERED_LISTS else sorted(items, key=repr)
    return _masked(name, value)


def _masked(name: str, value: Any) -> Any:
    if name in RATES:
        return "RATE"
    if name in TIMES and value not in (None, 0, "0"):
        return "TIME"
    if name in IDS and value not in (None, "", "0", 0):
        return "ID"
    if isinstance(value, str):
        return _PORT.sub(r"\1:PORT", value)
    return value
