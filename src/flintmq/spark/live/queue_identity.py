"""Proving that a queue is the one that was read before: by a record that was seen in it."""

import asyncio
import hashlib
from typing import Final

from flintmq.format.stored.record_layout import (
    HEADERS,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    RECORD_SIZE_MIN,
    SIZE_AT,
    SYS_FLAG_AT,
)
from flintmq.format.sys_flag import HOSTS_MASK
from flintmq.model.message_queue import MessageQueue
from flintmq.spark.live.fetch import (
    PAUSE_FIRST_S,
    PAUSE_MAX_S,
    WAITS_MAX,
    OnLoss,
    RecordPuller,
    pull_patiently,
)
from flintmq.spark.live.places import ProvenRange, SeenRecord
from flintmq.spark.live.ranges import Loss, QueueRange

_DIGEST_SIZE: Final = 16


async def record_before(
    puller: RecordPuller, queue: MessageQueue, offset: int
) -> SeenRecord | None:
    """Return what the record before an offset is known by; None if the broker does not have it."""
    return None if offset <= 0 else await record_at(puller, queue, offset - 1)


async def record_at(puller: RecordPuller, queue: MessageQueue, offset: int) -> SeenRecord | None:
    """Return what the record at an offset is known by; None if the broker does not have it."""
    answer = await puller.pull(queue, offset, 1, everything=True)
    return proof_of(answer.body, offset)


def proof_of(body: bytes, offset: int) -> SeenRecord | None:
    """Return what the first record of an answer is known by; None if it is not at ``offset``.

    A record may be damaged, as long as it says where it stands: its bytes are what counts.
    """
    if len(body) < RECORD_SIZE_MIN or _number(body, QUEUE_OFFSET_AT, 8) != offset:
        return None
    size = _number(body, SIZE_AT, 4)
    record = body[:size] if RECORD_SIZE_MIN <= size <= len(body) else body
    header = HEADERS[_number(body, SYS_FLAG_AT, 4) & HOSTS_MASK]
    return SeenRecord(
        max(0, _number(body, PHYSICAL_OFFSET_AT, 8)),
        _number(body, header.at("store_timestamp"), 8),
        hashlib.blake2b(record, digest_size=_DIGEST_SIZE).hexdigest(),
    )


def _number(body: bytes, at: int, size: int) -> int:
    return int.from_bytes(body[at : at + size], "big", signed=True)


async def difference(
    puller: RecordPuller, queue: MessageQueue, offset: int, last: SeenRecord
) -> str | None:
    """Return what shows that a queue is another one than ``last``, before ``offset``, was read of.

    None also means that nothing is left to compare with.
    """
    found = await record_before(puller, queue, offset)
    if found is not None:
        return None if found == last else f"its message at {offset - 1} is another one now"
    following = await record_at(puller, queue, offset)
    if following is not None and following.physical_offset <= last.physical_offset:
        return f"its message at {offset} lies before the one that was read last"
    return None


async def check_same(puller: RecordPuller, read: ProvenRange, on_loss: OnLoss) -> None:
    """Tell a loss if a queue that was read is another one now than the one that was planned for.

    Called behind the last read: a queue that was replaced does not come back, so what was read
    before is of the right one.  A record that retention has deleted meanwhile proves nothing.
    """
    for offset, last in read.proofs:
        before = QueueRange(read.wanted.queue, offset - 1, offset)
        found = await _found_again(puller, before, on_loss)
        if found is not None and found != last:
            reason = (
                f"it is not the queue that this read was planned for: its message at {offset - 1} "
                "is another one now, as in a topic that was deleted and made anew"
            )
            on_loss(read.wanted.queue, Loss(read.wanted.end, reason))


async def _found_again(
    puller: RecordPuller, wanted: QueueRange, on_loss: OnLoss
) -> SeenRecord | None:
    """Return what a record is known by now; None if it has expired, or its loss was told."""
    queue, offset, end = wanted
    for waits in range(1, WAITS_MAX + 1):
        answer = await pull_patiently(puller, wanted, on_loss, everything=True)
        if answer is None:
            return None
        found = proof_of(answer.body, offset)
        if found is not None or answer.min_offset > offset:
            return found
        # A replica may be behind its master.
        await asyncio.sleep(min(PAUSE_MAX_S, PAUSE_FIRST_S * 2**waits))
    reason = f"it had a message at {offset} and has none now: it went backwards"
    on_loss(queue, Loss(end, reason))
    return None
