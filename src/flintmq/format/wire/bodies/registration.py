"""The body with which a broker registers: its topics and their version, plain or compressed.

The compressed form is one zlib stream of sections, each led by its size; integers are big-endian:

    i32 size, the data version as JSON
    i32 count of topics, then for each: i32 size, "name read write perm filterType"
    i32 size, a JSON list of filter servers

Flags and order of topics are lost in it.  Brokers of 5.x add a sixth field and further sections.
"""

import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from flintmq.format.wire.bodies.dialect import (
    BodyError,
    Members,
    dumps_body,
    dumps_in_steps,
    loads_body,
)
from flintmq.format.wire.bodies.topics import (
    FILTER_TYPES,
    topic_table_from_json,
    topic_table_to_json,
    topic_to_json,
    version_from_json,
    version_to_json,
)
from flintmq.model.data_version import DataVersion
from flintmq.model.steps import Steps
from flintmq.model.topic_config import QUEUE_COUNT_MAX, TopicConfig

BODY_SIZE_MAX: Final = 64 << 20
"""A compressed body may not unfold to more."""

WRAPPED_SINCE_VERSION: Final = 37
"""Brokers of earlier releases send the table of topics alone."""

_SIZE: Final = struct.Struct(">i")


class Registration(NamedTuple):
    """What a broker says of itself."""

    topics: dict[str, TopicConfig]
    version: DataVersion
    filter_servers: tuple[str, ...] = ()


def encode_registration(
    topics: Iterable[TopicConfig], version: DataVersion, *, compressed: bool = False
) -> bytes:
    """Return the body of a registration."""
    if not compressed:
        table = topic_table_to_json(topics, version)
        return dumps_body({"filterServerList": [], "topicConfigSerializeWrapper": table})
    lines = [
        f"{one.name} {one.read_queue_count} {one.write_queue_count} {int(one.perm)} "
        f"{one.filter_type}"
        for one in topics
    ]
    sections = [_section(dumps_body(version_to_json(version))), _SIZE.pack(len(lines))]
    sections += [_section(line.encode()) for line in lines]
    sections.append(_section(b"[]"))
    return zlib.compress(b"".join(sections), 9)


def encode_in_steps(topics: Sequence[TopicConfig], version: DataVersion) -> Steps[bytes]:
    """Return the same body, not compressed, interruptible: a broker can have very many topics."""
    table: dict[str, Any] = {}
    for topic in topics:
        table[topic.name] = topic_to_json(topic)
        yield
    wrapper = {"dataVersion": version_to_json(version), "topicConfigTable": table}
    body = {"filterServerList": [], "topicConfigSerializeWrapper": wrapper}
    return (yield from dumps_in_steps(body))


def _section(content: bytes) -> bytes:
    return _SIZE.pack(len(content)) + content


def decode_registration(body: bytes, *, compressed: bool, release: int) -> Registration:
    """Return what a registration says; ``release`` is the version field of its request."""
    if not body:
        return Registration({}, DataVersion())
    if compressed:
        return _decode_compressed(body)
    value = loads_body(body)
    servers: tuple[str, ...] = ()
    if release >= WRAPPED_SINCE_VERSION:
        members = Members(value, "a registration")
        servers = tuple(map(str, members.items("filterServerList")))
        value = members.get("topicConfigSerializeWrapper")
        if value is None:
            return Registration({}, DataVersion(), servers)
    topics, version = topic_table_from_json(value)
    return Registration(topics, version, servers)


def _decode_compressed(body: bytes) -> Registration:
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(body, BODY_SIZE_MAX)
    except zlib.error as error:
        raise BodyError(f"a registration: {error}") from error
    if unpacker.unconsumed_tail:
        raise BodyError(f"a registration of more than {BODY_SIZE_MAX} bytes")
    sections = _Sections(content)
    version = version_from_json(loads_body(sections.take()))
    topics = {topic.name: topic for topic in (_topic(sections) for _ in range(sections.number()))}
    servers: Any = loads_body(sections.take())
    if not isinstance(servers, list):
        raise BodyError("a registration: the filter servers are no list")
    return Registration(topics, version, tuple(map(str, servers)))


def _topic(sections: "_Sections") -> TopicConfig:
    fields = sections.take().decode("utf-8", "replace").split(" ")
    try:
        name, read, write, perm, filter_type = fields[:5]
        counts = int(read), int(write)
        if not all(0 <= count <= QUEUE_COUNT_MAX for count in counts):
            raise BodyError(f"a registration: no number of queues: {counts}")
        return TopicConfig(
            name=name,
            read_queue_count=counts[0],
            write_queue_count=counts[1],
            perm=int(perm),
            filter_type=filter_type if filter_type in FILTER_TYPES else FILTER_TYPES[0],
        )
    except ValueError as error:
        raise BodyError("a registration: a topic without its five fields") from error


class _Sections:
    """Takes sections from the front of what a compressed body unfolds to."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def number(self) -> int:
        try:
            (value,) = _SIZE.unpack_from(self._content, self._at)
        except struct.error as error:
            raise BodyError("a registration ends too early") from error
        self._at += _SIZE.size
        # Every section takes at least its size field.
        if not 0 <= value <= len(self._content):
            raise BodyError(f"a registration: no size or count: {value}")
        return int(value)

    def take(self) -> bytes:
        end = self.number() + self._at
        if end > len(self._content):
            raise BodyError("a registration ends too early")
        content, self._at = self._content[self._at : end], end
        return content
