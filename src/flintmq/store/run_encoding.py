"""The records of a run, and what the views get of it, worked out before anything is written.

This is the hot path of a broker: it avoids what calls it can.
"""

from __future__ import annotations

import re
import struct
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from flintmq.format.batch import BODY_AT, ITEM, LENGTH
from flintmq.format.java import encoded_tags_code
from flintmq.format.record import (
    CRC_MASK,
    IPV4_HEADER,
    MESSAGE_MAGIC,
    PROPERTIES_LENGTH_MAX,
)
from flintmq.store.consume_queue import UNIT_FIELD_COUNT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Queue: TypeAlias = tuple[str, int]
"""Topic and queue id."""

ITEM_COUNT_MAX: Final = 16_384
"""Messages of a batch that goes with a run."""

_PAIR_END: Final = b"\x02"
_SEPARATOR: Final = b"\x02\0\x02"
_find_in_all: Final = re.compile(
    rb"(?:^|\x02)(?:(TAGS|KEYS|UNIQ_KEY)\x01([^\x02]+)|(\0)(?=\x02))"
).findall
"""Finds what the views need in property strings with separators between them."""


class RunTarget:
    """A queue that messages of runs go to, and what all of them have in common."""

    __slots__ = ("fixed_size", "queue", "queue_id", "reconsume_times", "sys_flag", "topic_part")

    def __init__(
        self, topic: str, queue_id: int, *, sys_flag: int = 0, reconsume_times: int = 0
    ) -> None:
        encoded = topic.encode()
        self.queue = (topic, queue_id)
        self.queue_id = queue_id
        self.sys_flag = sys_flag
        self.reconsume_times = reconsume_times
        self.topic_part = bytes([len(encoded)]) + encoded
        self.fixed_size = IPV4_HEADER.size + len(self.topic_part) + LENGTH.size


class RunMessage(NamedTuple):
    """A message of a run: no delay, no transaction, hosts of IPv4.

    ``keys`` and ``tags_code`` are what the properties in ``text`` say.
    """

    target: RunTarget
    flag: int
    born_timestamp: int
    born_host: bytes
    body: bytes
    text: bytes
    keys: Sequence[bytes]
    tags_code: int


class RunBatch(NamedTuple):
    """Several messages of a run as a producer sent them together, see `flintmq.format.batch`.

    ``text`` are the properties of all of them, with neither keys nor tags.
    """

    target: RunTarget
    born_timestamp: int
    born_host: bytes
    body: bytes
    text: bytes


class QueuePart:
    """The messages of a run that go to one queue."""

    __slots__ = ("end", "first", "units")

    def __init__(self, first: int) -> None:
        self.first = self.end = first
        """The queue offset of the first of them, and the one after the last."""
        self.units: list[int] = []
        """Physical offset, size and tags code of one after the other."""

    @property
    def count(self) -> int:
        """How many messages these are."""
        return self.end - self.first

    @property
    def size(self) -> int:
        """How many bytes of the log they take."""
        return sum(self.units[1::UNIT_FIELD_COUNT])


class RunKeys(NamedTuple):
    """The keys of a run in log order."""

    keys: list[bytes]
    physical_offsets: list[int]
    """Of the message of each key."""
    topics: list[tuple[str, int]]
    """The topics of the keys: a topic, and how many keys in a row are of it."""


class Run(NamedTuple):
    """Messages that were encoded together, and where each of them goes."""

    store_timestamp: int
    records: bytes
    counts: list[int]
    """How many messages each element has that was given: one, or those of a batch."""
    physical_offsets: list[int]
    queue_offsets: list[int]
    end_offset: int
    parts: dict[Queue, QueuePart]
    keys: RunKeys


class NotPlainError(Exception):
    """A run cannot be stored as one."""


class RunEncoder:
    """Encodes one run that begins at a place in the log.

    ``next_offsets`` are those of the queues before it.  Raises NotPlainError where a message is
    too large or a batch is none: storing them one by one tells which.
    """

    def __init__(
        self,
        physical_offset: int,
        *,
        next_offsets: Mapping[Queue, int],
        store_timestamp: int,
        store_host: bytes,
        record_size_max: int,
        body_size_max: int,
    ) -> None:
        self._next_offsets = next_offsets
        self._now = store_timestamp
        self._store_host = store_host
        self._record_size_max = record_size_max
        self._body_size_max = body_size_max
        self._end = physical_offset
        self._out: list[bytes] = []
        self._parts: dict[Queue, QueuePart] = {}
        self._physical_offsets: list[int] = []
        self._queue_offsets: list[int] = []
        self._keys = RunKeys([], [], [])

    def encode(self, messages: Sequence[RunMessage | RunBatch]) -> Run:
        """Return the run of these messages."""
        counts = []
        for message in messages:
            if isinstance(message, RunMessage):
                self._add(message)
                counts.append(1)
            else:
                counts.append(self._add_batch(message))
        return Run(
            self._now,
            b"".join(self._out),
            counts,
            self._physical_offsets,
            self._queue_offsets,
            self._end,
            self._parts,
            self._keys,
        )

    def _part(self, queue: Queue) -> QueuePart:
        part = self._parts.get(queue)
        if part is None:
            part = self._parts[queue] = QueuePart(self._next_offsets.get(queue, 0))
        return part

    def _add(self, message: RunMessage) -> None:
        target, flag, born, born_host, body, text, keys, tags = message
        body_size, text_size = len(body), len(text)
        size = target.fixed_size + body_size + text_size
        if (
            size > self._record_size_max
            or body_size > self._body_size_max
            or text_size > PROPERTIES_LENGTH_MAX
        ):
            raise NotPlainError
        part = self._parts.get(target.queue) or self._part(target.queue)
        queue_offset, physical_offset = part.end, self._end
        self._out += (
            IPV4_HEADER.pack(
                size,
                MESSAGE_MAGIC,
                zlib.crc32(body) & CRC_MASK,
                target.queue_id,
                flag,
                queue_offset,
                physical_offset,
                target.sys_flag,
                born,
                born_host,
                self._now,
                self._store_host,
                target.reconsume_times,
                0,
                body_size,
            ),
            body,
            target.topic_part,
            LENGTH.pack(text_size),
            text,
        )
        part.units += (physical_offset, size, tags)
        part.end = queue_offset + 1
        self._physical_offsets.append(physical_offset)
        self._queue_offsets.append(queue_offset)
        self._end = physical_offset + size
        if keys:
            all_keys, places, topics = self._keys
            all_keys += keys
            places += (physical_offset,) * len(keys)
            topics.append((target.queue[0], len(keys)))

    def _add_batch(self, batch: RunBatch) -> int:
        target, born, born_host, body, shared = batch
        flags, bodies, texts = _items(body)
        all_tags, own_keys = _dispatched(texts)
        part = self._part(target.queue)
        first = part.end
        units, out, places = part.units, self._out, self._physical_offsets
        keys, key_places, topics = self._keys
        pack, pack_length, crc32 = IPV4_HEADER.pack, LENGTH.pack, zlib.crc32
        queue_id, sys_flag, topic_part = target.queue_id, target.sys_flag, target.topic_part
        now, store_host, times = self._now, self._store_host, target.reconsume_times
        fixed_size, size_max = target.fixed_size + len(shared), self._record_size_max
        physical_offset, queue_offset, key_count = self._end, first, len(keys)
        for flag, item, text, tags, own in zip(
            flags, bodies, texts, all_tags, own_keys, strict=True
        ):
            size_of_item, text_size = len(item), len(text) + len(shared)
            size = fixed_size + size_of_item + len(text)
            if size > size_max or text_size > PROPERTIES_LENGTH_MAX:
                raise NotPlainError
            out += (
                pack(
                    size,
                    MESSAGE_MAGIC,
                    crc32(item) & CRC_MASK,
                    queue_id,
                    flag,
                    queue_offset,
                    physical_offset,
                    sys_flag,
                    born,
                    born_host,
                    now,
                    store_host,
                    times,
                    0,
                    size_of_item,
                ),
                item,
                topic_part,
                pack_length(text_size),
                text,
                shared,
            )
            units += (physical_offset, size, tags)
            places.append(physical_offset)
            keys += own
            key_places += (physical_offset,) * len(own)
            physical_offset += size
            queue_offset += 1
        part.end = queue_offset
        self._queue_offsets += range(first, queue_offset)
        self._end = physical_offset
        topics.append((target.queue[0], len(keys) - key_count))
        return len(flags)


def _items(body: bytes) -> tuple[list[int], list[bytes], list[bytes]]:
    """Return flags, bodies and properties of a batch, these ended so that others can follow."""
    flags, bodies, texts = [], [], []
    at, total = 0, len(body)
    unpack, unpack_length = ITEM.unpack_from, LENGTH.unpack_from
    try:
        while at < total:
            flag, body_size = unpack(body, at)
            at += BODY_AT
            length_at = at + body_size
            (text_size,) = unpack_length(body, length_at)
            text_at = length_at + 2
            end = text_at + text_size
            text = body[text_at:end]
            if body_size < 0 or text_size < 0 or end > total:
                raise NotPlainError
            if text_size and text[-1] != 2:
                text += _PAIR_END
            flags.append(flag)
            bodies.append(body[at:length_at])
            texts.append(text)
            at = end
    except struct.error:
        raise NotPlainError from None
    if not 0 < len(flags) <= ITEM_COUNT_MAX:
        raise NotPlainError
    return flags, bodies, texts


def _dispatched(texts: Sequence[bytes]) -> tuple[list[int], list[list[bytes]]]:
    """Return tags code and keys of many property strings.

    What `flintmq.format.record.dispatch_fields` gives for each, found in one go.
    """
    all_tags: list[int] = []
    all_keys: list[list[bytes]] = []
    codes: dict[bytes, int] = {b"": 0}
    tags = unique = keys = b""
    found = _find_in_all(_SEPARATOR.join(texts))
    found.append((b"", b"", b"\0"))
    for name, value, mark in found:
        if mark:
            own = [unique] if unique else []
            if keys:
                own += filter(None, keys.split(b" "))
            all_keys.append(own)
            code = codes.get(tags)
            if code is None:
                code = codes[tags] = encoded_tags_code(tags)
            all_tags.append(code)
            tags = unique = keys = b""
        elif name == b"UNIQ_KEY":
            unique = value
        elif name == b"KEYS":
            keys = value
        else:
            tags = value
    if len(all_tags) != len(texts):
        raise NotPlainError  # A property string holds a separator.
    return all_tags, all_keys
