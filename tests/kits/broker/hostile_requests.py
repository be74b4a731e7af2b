"""Requests that no honest client sends: every code, in both notations, with fields of all sorts."""

import functools
import json
import random
import struct
from collections.abc import Callable
from typing import Any, Final

from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.command import ONE_WAY_FLAG
from flintmq.format.wire.frame import HeaderType, encode_prefix
from flintmq.format.wire.headers.table import HEADERS
from tests.kits.broker.gate_kit import plain_fields

OWN_PREFIX: Final = "Hostile"
TOPICS: Final = tuple(f"{OWN_PREFIX}Topic{number}" for number in range(12))
GROUPS: Final = tuple(f"{OWN_PREFIX}Group{number}" for number in range(12))
USUAL_CODES: Final = (
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.PULL_MESSAGE,
    RequestCode.HEART_BEAT,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.LOCK_BATCH_MQ,
)
CODES: Final = (*sorted(HEADERS), *USUAL_CODES * 12, 0, -1, 9999, 32767, -32768)

NUMBERS: Final = (0, 1, 2, 3, 4, 6, 7, 8, 12, 32, 2**31 - 1, -1, -(2**31), 2**63 - 1, -(2**63))
ODD_NUMBERS: Final = ("", " 1", "1.5", "1e3", "0x10", "9" * 40, "NaN", "-", "+1", "\u0661", "true")
ODD_TEXTS: Final = (
    *("", " ", "*", "||", "a||b||", "../../etc/passwd", "/", "a\nb=c", "\x00", "\x1b[2J", "消息"),
    *("TAGS\x01a\x02KEYS\x01k k\x02", "DELAY\x013\x02", "WAIT\x01false\x02", "\x01\x02\x01\x02"),
    *("%RETRY%", "%DLQ%x", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "TBW102"),
    *("7F00000100002A9F0000000000000400", "7F00000100002A9FFFFFFFFFFFFFFFFF", "127.0.0.1:1"),
    "TRAN_MSG\x01true\x02PGROUP\x01g\x02UNIQ_KEY\x01u\x02",
    "\udcff",
)
ODD_VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    [],
    {},
    ["a"],
    {"a": 1},
    [[[]]],
)
HUGE_SIZES: Final = (128, 256, 263, 1025, 40_000, 70_000)
RARE_SIZES: Final = (300_000, 700_000)
BODY_MEMBERS: Final = (
    *("brokerName", "clientID", "clientId", "consumerDataSet", "consumerGroup", "groupName"),
    *("mqSet", "producerDataSet", "queueId", "subString", "subVersion", "subscriptionDataSet"),
    *("topic", "topicConfigTable", "codeSet", "tagsSet", "retryQueueNums", "offsetTable"),
)

OWN_FIELDS: Final[dict[str, tuple[Any, ...]]] = {
    **dict.fromkeys(("topic", "origin_topic", "topic_name"), TOPICS),
    **dict.fromkeys(("group", "group_name", "consumer_group", "producer_group"), GROUPS),
    **dict.fromkeys(("compare_group", "src_group", "dest_group"), GROUPS),
    "sys_flag": (0, 0, 4, 4, 5, 6, 6, 7),
    "suspend_timeout_millis": (0, 15_000, 10**15),
    "queue_offset": (0, 0, 1, 3, 10**12),
    "client_id": ("h1", "h2"),
}
"""What makes a request meet something that is there, all of it the peer's own."""

Fields = list[tuple[str, Any]]


class HostileRequests:
    """Makes requests by a seed; `frame` gives the bytes of the next one."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self.count = 0
        self._spoilings: tuple[Callable[[Fields], Fields], ...] = (
            self._as_it_is,
            self._huge,
            self._negative,
            self._missing,
            self._odd_typed,
            self._odd_text,
            self._repeated,
            self._with_strangers,
        )

    def frame(self) -> bytes:
        """Return a request; a few are no commands at all."""
        dice = self._dice
        self.count += 1
        code = dice.choice(CODES)
        fields = self._fields(code)
        for _ in range(dice.choice((0, 0, 1, 1, 2, 3))):
            fields = dice.choice(self._spoilings)(fields)
        header_type = dice.choice(list(HeaderType))
        header = (_json_header if header_type is HeaderType.JSON else _binary_header)(
            code=code,
            # Small ones can be taken for answers to what the broker asks.
            opaque=dice.choice((self.count, dice.randrange(8))),
            flag=dice.choice((0, 0, 0, 0, 0, ONE_WAY_FLAG, 1, 3, -1)),
            version=dice.choice((0, 399, 401, 32767)),
            fields=fields,
        )
        body = self._body(code)
        prefix = encode_prefix(header_type, header_size=len(header), body_size=len(body))
        return prefix + header + body

    # -- fields ------------------------------------------------------------------------------

    def _fields(self, code: int) -> Fields:
        """Return fields that may well be honest, save that all names are the peer's own."""
        if code not in HEADERS:
            return [("topic", self._dice.choice(TOPICS))]
        plain = _plain_fields(code)
        return [(wire, self._usual(name, text)) for wire, name, text in plain]

    def _usual(self, name: str, text: str) -> str:
        dice = self._dice
        if name in OWN_FIELDS:
            return str(dice.choice(OWN_FIELDS[name]))
        if text.isdecimal() and dice.random() < 0.1:
            return str(dice.choice(NUMBERS))
        return text

    def _as_it_is(self, fields: Fields) -> Fields:
        return fields

    def _spoil(self, fields: Fields, value: Any) -> Fields:
        if not fields:
            return fields
        at = self._dice.randrange(len(fields))
        return [*fields[:at], (fields[at][0], value), *fields[at + 1 :]]

    def _huge(self, fields: Fields) -> Fields:
        is_rare = self._dice.random() < 0.01
        size = self._dice.choice(RARE_SIZES if is_rare else HUGE_SIZES)
        return self._spoil(fields, self._dice.choice("x9\x01ü") * size)

    def _negative(self, fields: Fields) -> Fields:
        return self._spoil(fields, str(self._dice.choice(NUMBERS)))

    def _missing(self, fields: Fields) -> Fields:
        at = self._dice.randrange(len(fields) + 1)
        return fields[:at] + fields[at + 1 :]

    def _odd_typed(self, fields: Fields) -> Fields:
        return self._spoil(fields, self._dice.choice(ODD_VALUES))

    def _odd_text(self, fields: Fields) -> Fields:
        return self._spoil(fields, self._dice.choice(ODD_TEXTS + ODD_NUMBERS))

    def _repeated(self, fields: Fields) -> Fields:
        chosen = self._dice.choice(fields) if fields else ("topic", "T")
        return [*fields, (chosen[0], self._dice.choice(ODD_TEXTS)), chosen]

    def _with_strangers(self, fields: Fields) -> Fields:
        count = self._dice.choice((1, 5, 200))
        return [*fields, *((f"stranger{number}", "x" * 20) for number in range(count))]

    # -- bodies ------------------------------------------------------------------------------

    def _body(self, code: int) -> bytes:
        dice = self._dice
        if code == RequestCode.HEART_BEAT and dice.random() < 0.7:
            return json.dumps(self._heartbeat()).encode()
        choice = dice.random()
        if choice < 0.3:
            return b""
        if choice < 0.6:
            return json.dumps(self._value(3)).encode()
        if choice < 0.7:
            return dice.choice((b"{", b"[" * 3000, b"x=y", b"brokerPermission=x\n", b"\xff" * 30))
        return dice.randbytes(dice.choice((1, 8, 60, 500, 3000, 3000, 60_000)))

    def _heartbeat(self) -> dict[str, Any]:
        dice = self._dice
        subscriptions = [
            {
                "topic": dice.choice(TOPICS),
                "subString": dice.choice(("*", "a", "a||b", "x" * 70_000)),
                "tagsSet": [f"tag{number}" for number in range(dice.choice((0, 1, 300)))],
                "codeSet": [str(number) for number in range(dice.choice((0, 1, 300)))],
                "subVersion": dice.choice((0, 1, 2**40, -1)),
            }
            for _ in range(dice.choice((0, 1, 3)))
        ]
        return {
            "clientID": dice.choice(("h1", "h2", "x" * 300, "y" * 2000)),
            "producerDataSet": [{"groupName": dice.choice(GROUPS)}],
            "consumerDataSet": [
                {
                    "groupName": dice.choice((*GROUPS, "", "z" * 300)),
                    "subscriptionDataSet": subscriptions,
                    "messageModel": dice.choice(("CLUSTERING", "BROADCASTING", 1, "odd")),
                }
            ],
        }

    def _value(self, depth: int) -> Any:
        dice = self._dice
        if depth == 0 or dice.random() < 0.2:
            texts = (*TOPICS, *GROUPS, *(one for one in ODD_TEXTS if one.isascii()))
            return dice.choice((*ODD_VALUES, *NUMBERS, *texts))
        if dice.random() < 0.4:
            return [self._value(depth - 1) for _ in range(dice.randrange(4))]
        names = dice.sample(BODY_MEMBERS, dice.randrange(6))
        return {name: self._value(depth - 1) for name in names}


@functools.cache
def _plain_fields(code: int) -> list[tuple[str, str, str]]:
    """Return the name on the wire, the name and an honest text of the fields of a request."""
    kind = HEADERS[code].request
    named = dict(zip(kind.wire_fields(), kind._defaults, strict=True))
    return [(wire, named[wire], text) for wire, text in plain_fields(kind).items()]


def _json_header(*, code: int, opaque: int, flag: int, version: int, fields: Fields) -> bytes:
    # Written by hand: a name may be there twice, and a value may be of any type.
    members = ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in fields)
    return (
        f'{{"code":{code},"extFields":{{{members}}},"flag":{flag},"language":"JAVA",'
        f'"opaque":{opaque},"serializeTypeCurrentRPC":"JSON","version":{version}}}'
    ).encode()


def _binary_header(*, code: int, opaque: int, flag: int, version: int, fields: Fields) -> bytes:
    entries = b"".join(
        struct.pack(">h", len(name)) + name.encode() + struct.pack(">i", len(text)) + text
        for name, value in fields
        for text in (("" if value is None else str(value)).encode("utf-8", "surrogateescape"),)
    )
    fixed = struct.pack(">hBhiii", code, 0, version, opaque, flag, 0)
    return fixed + struct.pack(">i", len(entries)) + entries
