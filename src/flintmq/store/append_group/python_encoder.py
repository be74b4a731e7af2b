"""Append groups encoded in Python.

This is the hot path of a broker without machine code, and of small groups in every broker.
"""

from __future__ import annotations

import functools
from itertools import accumulate, chain, repeat
from typing import TYPE_CHECKING, Final

from flintmq.format.host import IPV4_HOST_SIZE
from flintmq.format.message_id import pack_offset, pack_offsets
from flintmq.format.stored.consume_queue import UNIT, UNIT_FIELD_COUNT, pack_units
from flintmq.format.stored.record_encoding import batch_records, encode_with_topic, pack_origin
from flintmq.format.stored.record_layout import PROPERTIES_LENGTH_MAX
from flintmq.format.sys_flag import with_hosts
from flintmq.store.append_group.batch_items import dispatch_columns, is_large_batch, split_items
from flintmq.store.append_group.group_keys import GroupKeys
from flintmq.store.append_group.plain_properties import PlainProperties
from flintmq.store.append_group.sends import (
    AppendGroup,
    NotPlainError,
    QueueSlices,
    StoredAt,
)

if TYPE_CHECKING:
    from flintmq.store.append_group.sends import AppendPosition, Sends, SendTarget

# NamedTuple's own constructor takes twice the time of the tuple's.
_new_stored_at: Final = functools.partial(tuple.__new__, StoredAt)
_pack_unit: Final = UNIT.pack


class PythonEncoder:
    """Encodes append groups in Python; it is there on every machine, from the start."""

    def __init__(self) -> None:
        self._properties = PlainProperties()

    def encode(self, sends: Sends, position: AppendPosition) -> AppendGroup:
        """Return the append group of these sends; see `GroupEncoder`."""
        try:
            return self._encode(sends, position)
        except NotPlainError:
            raise NotPlainError(self._special_rows(sends, position)) from None

    def _special_rows(self, sends: Sends, position: AppendPosition) -> list[int]:
        """Return the numbers of the sends that cannot even be encoded by themselves."""
        work = _GroupWork(sends, position, self._properties)
        return [row for row in range(len(sends.targets)) if work.is_special(row)]

    def _encode(self, sends: Sends, position: AppendPosition) -> AppendGroup:
        work = _GroupWork(sends, position, self._properties)
        for row, target in enumerate(sends.targets):
            if target.is_batch:
                work.add_batch(row)
            else:
                work.add_message(row)
        return AppendGroup(
            position.store_timestamp,
            b"".join(work.pieces),
            work.end,
            work.slices,
            work.keys,
            work.stored,
        )


def _sys_flag(target: SendTarget, born_host: bytes, store_host: bytes) -> int:
    return with_hosts(target.sys_flag, born_host=born_host, store_host=store_host)


class _GroupWork:
    """An append group that is being encoded."""

    def __init__(self, sends: Sends, position: AppendPosition, properties: PlainProperties) -> None:
        self._sends = sends
        self._position = position
        self._properties = properties
        self.end = position.physical_offset
        """The physical offset behind the last record."""
        self.pieces: list[bytes] = []
        """The records, to be joined."""
        self.slices = QueueSlices(position.next_offsets)
        self.keys = GroupKeys()
        self.stored: list[StoredAt] = []

    def add_message(self, row: int) -> None:
        """Encode a message."""
        sends, position = self._sends, self._position
        target, body = sends.targets[row], sends.bodies[row]
        judged = self._properties.judge(sends.properties_texts[row], sends.last_properties)
        if judged is None:
            raise NotPlainError
        text, keys, tags_code = judged
        body_size, text_size = len(body), len(text)
        born_host, store_host = sends.born_hosts[row], position.store_host
        growth = len(born_host) + len(store_host) - 2 * IPV4_HOST_SIZE
        size = target.fixed_size + growth + body_size + text_size
        if (
            size > position.record_size_max
            or body_size > position.body_size_max
            or text_size > PROPERTIES_LENGTH_MAX
        ):
            raise NotPlainError
        part = self.slices[target.queue]
        queue_offset, physical_offset = part.end, self.end
        self.pieces.append(
            encode_with_topic(
                target.topic_part,
                target.queue_id,
                target.flag,
                queue_offset,
                physical_offset,
                _sys_flag(target, born_host, store_host) if growth else target.sys_flag,
                sends.born_timestamps[row],
                born_host,
                position.store_timestamp,
                store_host,
                target.reconsume_times,
                0,
                body,
                text,
            )
        )
        part.units.append(_pack_unit(physical_offset, size, tags_code))
        part.end = queue_offset + 1
        part.size += size
        self.end = physical_offset + size
        if keys:
            self.keys.add(target.key_prefix, keys, physical_offset)
        self.stored.append(_new_stored_at((queue_offset, pack_offset(physical_offset))))

    def is_special(self, row: int) -> bool:
        """Whether a send cannot be encoded, be it alone; the group is of no use after that."""
        sends, position = self._sends, self._position
        target, body = sends.targets[row], sends.bodies[row]
        if target.is_batch:
            try:
                self.add_batch(row)
            except NotPlainError:
                return True
            return False
        judged = self._properties.judge(sends.properties_texts[row], sends.last_properties)
        if judged is None:
            return True
        text_size = len(judged[0])
        growth = len(sends.born_hosts[row]) + len(position.store_host) - 2 * IPV4_HOST_SIZE
        return (
            target.fixed_size + growth + len(body) + text_size > position.record_size_max
            or len(body) > position.body_size_max
            or text_size > PROPERTIES_LENGTH_MAX
        )

    def add_batch(self, row: int) -> None:
        """Encode the messages of a batch."""
        sends, position = self._sends, self._position
        target, body = sends.targets[row], sends.bodies[row]
        shared = self._properties.judge_batch(sends.properties_texts[row], sends.last_properties)
        if shared is None or len(body) > position.body_size_max:
            raise NotPlainError
        if position.is_shared and is_large_batch(body):
            raise NotPlainError
        flags, bodies, texts = split_items(body)
        tags_codes, keys, key_counts = dispatch_columns(texts)
        born_host, store_host = sends.born_hosts[row], position.store_host
        growth = len(born_host) + len(store_host) - 2 * IPV4_HOST_SIZE
        fixed_size = target.fixed_size + growth + len(shared)
        sizes = [fixed_size + len(one) + len(text) for one, text in zip(bodies, texts, strict=True)]
        longest = max(map(len, texts)) + len(shared)
        if max(sizes) > position.record_size_max or longest > PROPERTIES_LENGTH_MAX:
            raise NotPlainError
        physical_offsets = list(accumulate(sizes, initial=self.end))
        part = self.slices[target.queue]
        count, queue_offset = len(flags), part.end
        self.end = physical_offsets.pop()
        part.end += count
        part.size += sum(sizes)
        origin = pack_origin(
            _sys_flag(target, born_host, store_host),
            sends.born_timestamps[row],
            born_host,
            position.store_timestamp,
            store_host,
            target.reconsume_times,
            0,
        )
        self.pieces += batch_records(
            sizes,
            target.queue_id,
            flags,
            range(queue_offset, part.end),
            physical_offsets,
            origin,
            bodies,
            target.topic_part,
            texts,
            shared,
        )
        units = [0] * (count * UNIT_FIELD_COUNT)
        units[0::UNIT_FIELD_COUNT] = physical_offsets
        units[1::UNIT_FIELD_COUNT] = sizes
        units[2::UNIT_FIELD_COUNT] = tags_codes
        part.units.append(pack_units(units))
        self.keys.keys += keys
        self.keys.physical_offsets += chain.from_iterable(map(repeat, physical_offsets, key_counts))
        self.keys.prefixes.append((target.key_prefix, len(keys)))
        self.stored.append(StoredAt(queue_offset, pack_offsets(physical_offsets)))
