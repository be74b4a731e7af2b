"""Sends encoded in machine code: as records, as queue units and as hashes of keys.

It goes in passes over tables: sends are split into messages, messages get their offsets, and then
records, units and keys are written.  The result is what the encoder in Python gives
(``flintmq.store.append_group.python_encoder``); where anything is special, that one is asked.
"""

from typing import Final

import numpy as np

from flintmq.format.stored import batch
from flintmq.format.stored.record_layout import (
    IPV4_BODY_AT,
    IPV6_GROWTH,
    LENGTHS_SIZE,
    PROPERTIES_LENGTH_MAX,
    PROPERTIES_LENGTH_SIZE,
)
from flintmq.format.sys_flag import BORN_HOST_V6, STORE_HOST_V6
from flintmq.kernels.compiled import (
    Bytes,
    Ints,
    Longs,
    Target,
    copy_bytes,
    kernel,
    load_byte,
    load_int,
    load_short,
    put_short,
)
from flintmq.kernels.crc import crc31
from flintmq.kernels.dispatch_fields import (
    PAIR_END,
    find_dispatched,
    key_count_max,
    put_key_hashes,
    tags_code,
)
from flintmq.kernels.group_buffers import (
    BODY_AT,
    BODY_SIZE,
    BODY_SIZE_MAX,
    BORN_TIMESTAMP,
    CUT_AT,
    CUT_END,
    FLAG,
    HOST,
    HOST_STRIDE,
    IS_BATCH,
    KEY_PREFIX,
    LACKS_END,
    LOG_SIZE,
    MESSAGE_FLAG,
    NEXT_OFFSET,
    PHYSICAL_OFFSET,
    QUEUE,
    QUEUE_ID,
    QUEUE_OFFSET,
    RECONSUME_TIMES,
    RECORD_SIZE,
    RECORD_SIZE_MAX,
    SEND_BODY_AT,
    SEND_BODY_SIZE,
    SEND_BORN,
    SEND_CUT_AT,
    SEND_CUT_END,
    SEND_HOST,
    SEND_TARGET,
    SEND_TEXT_AT,
    SEND_TEXT_SIZE,
    START_OFFSET,
    STORE_TIMESTAMP,
    STORED_TEXT_SIZE,
    SYS_FLAG,
    TAIL_AT,
    TAIL_SIZE,
    TARGET,
    TEXT_AT,
    TEXT_END,
    TOPIC_AT,
    TOPIC_SIZE,
    UNIT,
    UNIT_END,
    GroupBuffers,
    GroupHosts,
    Table,
)
from flintmq.kernels.plain_properties import NOT_PLAIN, judge_properties
from flintmq.kernels.properties import PAIRS_MAX
from flintmq.kernels.queue_units import put_unit
from flintmq.kernels.record_encoding import RecordHead, put_header, put_topic

_ITEM_SIZE_MIN: Final = batch.ITEM_SIZE_MIN
_ITEM_FLAG_AT: Final = batch.ITEM_FLAG_AT
_ITEM_BODY_LENGTH_AT: Final = batch.ITEM_BODY_LENGTH_AT
_ITEM_BODY_AT: Final = batch.BODY_AT
_ITEM_LENGTH_SIZE: Final = batch.LENGTH.size


@kernel
def encode_sends(
    data: Bytes,
    start: Longs,
    sends: Table,
    targets: Table,
    queues: Table,
    shared: Bytes,
    hosts: GroupHosts,
    buffers: GroupBuffers,
) -> tuple[int, int]:
    """Encode sends; return how many bytes of records and how many keys there are.

    ``data`` has bodies and properties texts.  ``start`` is where the group begins, and its limits.
    ``shared`` has the topics and tails of the targets.  The first number is NOT_PLAIN where
    something is special, be it only for machine code, or does not fit into the buffers; what
    stands in those then means nothing.
    """
    if not _judge_sends(data, sends, targets):
        return NOT_PLAIN, 0
    return encode_judged(
        data, start, sends, sends.shape[0], targets, queues, shared, hosts, buffers
    )


@kernel
def encode_judged(
    data: Bytes,
    start: Longs,
    sends: Table,
    send_count: int,
    targets: Table,
    queues: Table,
    shared: Bytes,
    hosts: GroupHosts,
    buffers: GroupBuffers,
) -> tuple[int, int]:
    """Encode the first sends of the table, whose properties are plain; see `encode_sends`."""
    messages, first_messages, records, units, hashes, key_offsets = buffers
    packed_hosts, host_flags = hosts
    count = _split_sends(
        data, sends, send_count, targets, start[BODY_SIZE_MAX], messages, first_messages
    )
    if count == NOT_PLAIN:
        return NOT_PLAIN, 0
    messages = messages[:count]
    size = _place_messages(data, messages, targets, queues, host_flags, start, len(records))
    if size == NOT_PLAIN:
        return NOT_PLAIN, 0
    key_count = _put_units_and_keys(data, messages, targets, units, hashes, key_offsets)
    if key_count == NOT_PLAIN:
        return NOT_PLAIN, 0
    _put_records(data, messages, targets, shared, packed_hosts, host_flags, start, records)
    return size, key_count


@kernel
def _judge_sends(data: Bytes, sends: Table, targets: Table) -> bool:
    """Find what is cut out of properties texts; return whether all of them are plain."""
    names_at = np.empty(PAIRS_MAX, np.int64)
    names_size = np.empty(PAIRS_MAX, np.int32)
    for row in range(sends.shape[0]):
        if targets[sends[row, SEND_TARGET], IS_BATCH]:
            continue
        text_at = sends[row, SEND_TEXT_AT]
        cut_at, cut_end = judge_properties(
            data, text_at, text_at + sends[row, SEND_TEXT_SIZE], names_at, names_size
        )
        if cut_at == NOT_PLAIN:
            return False
        sends[row, SEND_CUT_AT] = cut_at
        sends[row, SEND_CUT_END] = cut_end
    return True


@kernel
def _split_sends(
    data: Bytes,
    sends: Table,
    send_count: int,
    targets: Table,
    body_size_max: int,
    messages: Table,
    first_messages: Longs,
) -> int:
    """Fill the table of messages; return how many there are, or NOT_PLAIN."""
    count = 0
    for row in range(send_count):
        body_at, body_size = sends[row, SEND_BODY_AT], sends[row, SEND_BODY_SIZE]
        target = sends[row, SEND_TARGET]
        if body_size > body_size_max or count == len(messages):
            return NOT_PLAIN
        first_messages[row] = first = count
        if targets[target, IS_BATCH]:
            count = _split_batch(data, body_at, body_at + body_size, target, messages, count)
            if count in (first, NOT_PLAIN):
                return NOT_PLAIN
        else:
            messages[count, TARGET] = target
            messages[count, MESSAGE_FLAG] = targets[target, FLAG]
            messages[count, BODY_AT] = body_at
            messages[count, BODY_SIZE] = body_size
            messages[count, TEXT_AT] = sends[row, SEND_TEXT_AT]
            messages[count, TEXT_END] = sends[row, SEND_TEXT_AT] + sends[row, SEND_TEXT_SIZE]
            messages[count, CUT_AT] = sends[row, SEND_CUT_AT]
            messages[count, CUT_END] = sends[row, SEND_CUT_END]
            count += 1
        for number in range(first, count):
            messages[number, BORN_TIMESTAMP] = sends[row, SEND_BORN]
            messages[number, HOST] = sends[row, SEND_HOST]
    first_messages[send_count] = count
    return count


@kernel
def _split_batch(data: Bytes, at: int, end: int, target: int, messages: Table, count: int) -> int:
    """Add the items of a batch to the table of messages; return its new count, or NOT_PLAIN."""
    while at < end:
        if end - at < _ITEM_SIZE_MIN or count == len(messages):
            return NOT_PLAIN
        body_at = at + _ITEM_BODY_AT
        body_size = load_int(data, at + _ITEM_BODY_LENGTH_AT)
        if body_size < 0 or body_size > end - body_at - _ITEM_LENGTH_SIZE:
            return NOT_PLAIN
        text_size = load_short(data, body_at + body_size)
        text_at = body_at + body_size + _ITEM_LENGTH_SIZE
        if text_size < 0 or text_size > end - text_at:
            return NOT_PLAIN
        text_end = text_at + text_size
        messages[count, TARGET] = target
        messages[count, MESSAGE_FLAG] = load_int(data, at + _ITEM_FLAG_AT)
        messages[count, BODY_AT] = body_at
        messages[count, BODY_SIZE] = body_size
        messages[count, TEXT_AT] = text_at
        messages[count, TEXT_END] = messages[count, CUT_AT] = messages[count, CUT_END] = text_end
        at = text_end
        count += 1
    return count


@kernel
def _place_messages(
    data: Bytes,
    messages: Table,
    targets: Table,
    queues: Table,
    host_flags: Longs,
    start: Longs,
    record_bytes_max: int,
) -> int:
    """Give the messages their sizes and offsets; return the bytes of all records, or NOT_PLAIN."""
    for row in range(len(queues)):
        queues[row, UNIT_END] = 0
    for row in range(len(messages)):
        queues[targets[messages[row, TARGET], QUEUE], UNIT_END] += 1
    unit = 0
    for row in range(len(queues)):
        count = queues[row, UNIT_END]
        queues[row, UNIT_END] = unit
        unit += count
    total = 0
    for row in range(len(messages)):
        target = messages[row, TARGET]
        queue = targets[target, QUEUE]
        text_at, text_end = messages[row, TEXT_AT], messages[row, TEXT_END]
        cut_at, cut_end = messages[row, CUT_AT], messages[row, CUT_END]
        # The last pair gets a separator if it has none, unless it is the one that is cut out.
        lacks_end = 0
        if text_end > text_at and cut_end <= text_end:
            lacks_end = load_byte(data, text_end - 1) != PAIR_END
        kept_size = cut_at - text_at + max(text_end - cut_end, 0)
        text_size = kept_size + lacks_end + targets[target, TAIL_SIZE]
        host_flag = host_flags[messages[row, HOST]]
        size = (
            IPV4_BODY_AT
            + IPV6_GROWTH * (host_flag & BORN_HOST_V6 != 0)
            + IPV6_GROWTH * (host_flag & STORE_HOST_V6 != 0)
            + LENGTHS_SIZE
            + messages[row, BODY_SIZE]
            + targets[target, TOPIC_SIZE]
            + text_size
        )
        if (
            size > start[RECORD_SIZE_MAX]
            or text_size > PROPERTIES_LENGTH_MAX
            or total + size > record_bytes_max
        ):
            return NOT_PLAIN
        messages[row, LACKS_END] = lacks_end
        messages[row, STORED_TEXT_SIZE] = text_size
        messages[row, RECORD_SIZE] = size
        messages[row, PHYSICAL_OFFSET] = start[START_OFFSET] + total
        messages[row, QUEUE_OFFSET] = queues[queue, NEXT_OFFSET]
        messages[row, UNIT] = queues[queue, UNIT_END]
        queues[queue, NEXT_OFFSET] += 1
        queues[queue, UNIT_END] += 1
        queues[queue, LOG_SIZE] += size
        total += size
    return total


@kernel
def _put_units_and_keys(
    data: Bytes, messages: Table, targets: Table, units: Target, hashes: Ints, key_offsets: Longs
) -> int:
    """Write the units and the hashes of keys; return how many keys there are, or NOT_PLAIN."""
    count = 0
    for row in range(len(messages)):
        values = find_dispatched(data, messages[row, TEXT_AT], messages[row, TEXT_END])
        if count + key_count_max(values) > len(hashes):
            return NOT_PLAIN
        code, is_special_code = tags_code(data, values)
        prefix = targets[messages[row, TARGET], KEY_PREFIX]
        end, is_special_key = put_key_hashes(data, values, prefix, hashes, count)
        if is_special_code or is_special_key:
            return NOT_PLAIN
        for number in range(count, end):
            key_offsets[number] = messages[row, PHYSICAL_OFFSET]
        count = end
        put_unit(
            units,
            messages[row, UNIT],
            messages[row, PHYSICAL_OFFSET],
            messages[row, RECORD_SIZE],
            code,
        )
    return count


@kernel
def _put_records(
    data: Bytes,
    messages: Table,
    targets: Table,
    shared: Bytes,
    packed_hosts: Bytes,
    host_flags: Longs,
    start: Longs,
    records: Target,
) -> None:
    """Write the records, one behind the other."""
    for row in range(len(messages)):
        target = messages[row, TARGET]
        body_size = messages[row, BODY_SIZE]
        host = messages[row, HOST]
        head = RecordHead(
            messages[row, RECORD_SIZE],
            crc31(data, messages[row, BODY_AT], body_size),
            targets[target, QUEUE_ID],
            messages[row, MESSAGE_FLAG],
            messages[row, QUEUE_OFFSET],
            messages[row, PHYSICAL_OFFSET],
            targets[target, SYS_FLAG] | host_flags[host],
            messages[row, BORN_TIMESTAMP],
            start[STORE_TIMESTAMP],
            targets[target, RECONSUME_TIMES],
            0,
            body_size,
        )
        record_at = messages[row, PHYSICAL_OFFSET] - start[START_OFFSET]
        # The store host comes first, so born hosts stand one further than their numbers say.
        to = put_header(records, record_at, head, packed_hosts, (host + 1) * HOST_STRIDE, 0)
        copy_bytes(records, to, data, messages[row, BODY_AT], body_size)
        to = put_topic(
            records, to + body_size, shared, targets[target, TOPIC_AT], targets[target, TOPIC_SIZE]
        )
        put_short(records, to, messages[row, STORED_TEXT_SIZE])
        to += PROPERTIES_LENGTH_SIZE
        before_size = messages[row, CUT_AT] - messages[row, TEXT_AT]
        after_size = max(messages[row, TEXT_END] - messages[row, CUT_END], 0)
        copy_bytes(records, to, data, messages[row, TEXT_AT], before_size)
        to += before_size
        copy_bytes(records, to, data, messages[row, CUT_END], after_size)
        to += after_size
        if messages[row, LACKS_END]:
            records[to] = np.uint8(PAIR_END)
            to += 1
        copy_bytes(records, to, shared, targets[target, TAIL_AT], targets[target, TAIL_SIZE])
