"""The JSON dialect of bodies: what fastjson writes, and what clients of all languages send.

It is JSON with two additions, which occur as the names of members only:

    {0:"10.0.0.1:10911"}                                  integers stand bare
    {{"brokerName":"b","queueId":0,"topic":"t"}:7}        objects are names too

Bodies are written compact: the Go client cuts them at commas and colons.  Members without a value
are left out.
"""

import json
import math
from collections.abc import Generator, Mapping
from json.encoder import encode_basestring
from typing import Any, Final, NoReturn

import orjson

from flintmq.format import fastjson
from flintmq.format.errors import FormatError, StateTextError
from flintmq.format.wire.name_limits import NAME_LENGTHS
from flintmq.model.message_queue import MessageQueue
from flintmq.model.steps import Steps

_INFINITE: Final = (math.inf, -math.inf)
_STEP_MEMBERS: Final = 32
"""Members that `dumps_in_steps` writes in one step at most."""
_CHUNK_PARTS: Final = 1024
"""Pieces of text that `dumps_in_steps` joins at once."""
_SCALARS: Final = frozenset({str, int, bool})
_LISTS: Final = (list, tuple, set, frozenset)


REQUEST_SIZE_MAX: Final = 4 << 20
"""Bytes of JSON that a client may send to a broker: a heartbeat of 10,000 groups has 2.5 MB."""


class BodyError(FormatError):
    """A body is not what its request or answer asks for."""


def check_request_size(body: bytes, size_max: int = REQUEST_SIZE_MAX) -> None:
    """Raise BodyError for more JSON than any client has to say."""
    if len(body) > size_max:
        raise BodyError(f"a body of {len(body)} bytes, at most {size_max} are read")


def loads_body(body: bytes) -> Any:
    """Return the value of a body; BodyError if it has none."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return loads_giving_way(body)


def loads_giving_way(body: bytes) -> Any:
    """Return the value of a body as `loads_body` does, in many times the time.

    This parser is written in Python, so other threads can go on meanwhile.
    """
    try:
        return fastjson.loads(body)
    except StateTextError as error:
        raise BodyError(f"the body is no JSON: {error}") from error


def dumps_body(value: Any, *, standard: bool = False) -> bytes:
    """Return the body for ``value``; if ``standard``, integer names are quoted.

    A `MessageQueue` may be a value, and the name of a member.
    """
    parts: list[str] = []
    _write(parts, value, standard=standard)
    return "".join(parts).encode("utf-8", "replace")


def dumps_in_steps(value: Any) -> Steps[bytes]:
    """Do the same as `dumps_body`, interruptible: for values with very many members.

    Nobody may change the value meanwhile.
    """
    parts: list[str] = []
    chunks: list[bytes] = []
    for _ in _write_in_steps(parts, value):
        if len(parts) >= _CHUNK_PARTS:
            chunks.append("".join(parts).encode("utf-8", "replace"))
            parts.clear()
        yield
    chunks.append("".join(parts).encode("utf-8", "replace"))
    return b"".join(chunks)


def _write_in_steps(parts: list[str], value: Any) -> Generator[None, None, None]:
    if isinstance(value, MessageQueue):
        value = queue_members(value)
    if isinstance(value, Mapping):
        begin, end = "{}"
        members = ((f"{_name(name, standard=False)}:", one) for name, one in value.items())
    elif isinstance(value, _LISTS):
        begin, end = "[]"
        members = (("", one) for one in value)
    else:
        _write(parts, value, standard=False)
        return
    before, written_count = begin, 0
    for name, member in members:
        if member is None and name:
            continue
        parts.append(before + name)
        before = ","
        count = _small_count(member)
        if count:
            _write_small(parts, member)
            written_count += count
        else:
            yield from _write_in_steps(parts, member)
        if count > 1 or written_count >= _STEP_MEMBERS:
            written_count = 0
            yield
    parts.append(end if before == "," else begin + end)
    yield


def _small_count(value: Any) -> int:
    """Return how many members a value is written as in one go; 0 if it may be large."""
    if value.__class__ in _SCALARS:
        return 1
    if value.__class__ is not dict or len(value) > _STEP_MEMBERS:
        return 0
    for member in value.values():
        if member.__class__ not in _SCALARS:
            return 0
    return len(value) + 1


def _write_small(parts: list[str], value: Any) -> None:
    """Write a value that `_small_count` has counted; its text is that of any JSON, mostly."""
    try:
        parts.append(orjson.dumps(value).decode())
    except TypeError:  # Numbers as names, numbers of more than 64 bits, half characters
        _write(parts, value, standard=False)


def queue_members(queue: MessageQueue) -> dict[str, Any]:
    """Return a queue as the members of its JSON object."""
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


def queue_from(members: Any) -> MessageQueue:
    """Return a queue from its JSON object, or from what `loads_body` makes of one as a name."""
    known = Members(dict(members) if isinstance(members, tuple) else members, "a queue")
    queue_id = known.integer("queueId", -1)
    if queue_id < 0:
        raise BodyError("a queue: queueId is missing or negative")
    return MessageQueue(known.name("topic"), known.name("brokerName"), queue_id)


def _write(parts: list[str], value: Any, *, standard: bool) -> None:
    if isinstance(value, MessageQueue):
        value = queue_members(value)
    if isinstance(value, Mapping):
        before = "{"
        for name, member in value.items():
            if member.__class__ in _SCALARS:
                parts.append(f"{before}{_name(name, standard=standard)}:{_scalar(member)}")
                before = ","
            elif member is not None:
                parts.append(f"{before}{_name(name, standard=standard)}:")
                _write(parts, member, standard=standard)
                before = ","
        parts.append("}" if before == "," else "{}")
    elif isinstance(value, _LISTS):
        before = "["
        for item in value:
            parts.append(before)
            _write(parts, item, standard=standard)
            before = ","
        parts.append("]" if before == "," else "[]")
    elif isinstance(value, float) and (math.isnan(value) or value in _INFINITE):
        parts.append("null")
    else:
        parts.append(_scalar(value))


def _scalar(value: Any) -> str:
    # `json.dumps` makes an encoder for each text: that is most of the time of a large body.
    if isinstance(value, str):
        return encode_basestring(value)
    if value.__class__ is int:
        return repr(value)
    if value.__class__ is bool:
        return "true" if value else "false"
    return json.dumps(value)


def _name(name: Any, *, standard: bool) -> str:
    if isinstance(name, str):
        return encode_basestring(name)
    if isinstance(name, MessageQueue):
        return dumps_body(name, standard=standard).decode()
    assert isinstance(name, int), f"no name of a member: {name!r}"
    return f'"{name}"' if standard else str(name)


class Members:
    """The members of a JSON object, read with the leniency that clients need.

    Numbers may come as text and text as numbers; a member that is null is not there.
    """

    __slots__ = ("_members", "_what")

    def __init__(self, value: Any, what: str) -> None:
        if not isinstance(value, Mapping):
            raise BodyError(f"{what} is no object")
        self._members = value
        self._what = what

    def _fail(self, name: str, expected: str) -> NoReturn:
        raise BodyError(f"{self._what}: {name} is not {expected}")

    def get(self, name: str) -> Any:
        """Return a member as it is, or None."""
        return self._members.get(name)

    def text(self, name: str, default: str | None = None) -> str:
        """Return a member as text; without a default it must be there."""
        value = self._members.get(name)
        if value is None:
            if default is None:
                raise BodyError(f"{self._what}: {name} is missing")
            return default
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            return str(value)
        self._fail(name, "text")

    def name(self, name: str, default: str | None = None) -> str:
        """Return a member that names something, or describes it, and is not longer than it may be.

        It is for what peers send; a file of ours, or of Java, is read whatever it has.
        """
        text = self.text(name, default)
        length_max = NAME_LENGTHS[name]
        if len(text) > length_max:
            raise BodyError(f"{self._what}: {name} is longer than {length_max} characters")
        return text

    def integer(self, name: str, default: int) -> int:
        """Return a member as an integer of 64 bits."""
        value = self._members.get(name)
        if value is None or value == "":
            return default
        if isinstance(value, str) and len(value) <= 20:
            try:
                value = int(value)
            except ValueError:
                self._fail(name, "an integer")
        if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
            self._fail(name, "an integer")
        return value

    def truth(self, name: str, *, default: bool) -> bool:
        """Return a member as a truth value."""
        value = self._members.get(name)
        if value is None:
            return default
        if isinstance(value, str):
            return value.lower() in ("true", "1")
        return bool(value)

    def choice(self, name: str, names: tuple[str, ...], default: str) -> str:
        """Return a member that is one of ``names``, given as such or by its number."""
        value = self._members.get(name)
        if value is None:
            return default
        if isinstance(value, str) and value.isdecimal() and len(value) < 5:
            value = int(value)
        if isinstance(value, int) and 0 <= value < len(names):
            return names[value]
        if value not in names:
            self._fail(name, f"one of {', '.join(names)}")
        return str(value)

    def items(self, name: str) -> list[Any]:
        """Return a list; none where there is no such member."""
        value = self._members.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            self._fail(name, "a list")
        return value

    def table(self, name: str) -> Mapping[Any, Any]:
        """Return a map; an empty one where there is no such member."""
        value = self._members.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self._fail(name, "a map")
        return value
