"""Batches made ready to be appended, step by step, before they have their place in the log.

A batch is appended in one go, all of it or nothing, and may have tens of thousands of messages.
What takes long does not depend on where they will stand: to take them out, to check them, to sum up
their bodies, to join what stands in their records.  So that is done first, in steps between which
others are served, and nobody has to wait for the log meanwhile.  What is left for the append is
little for each message (`flintmq.format.stored.record_encoding.place_records`).
"""

from __future__ import annotations

from itertools import accumulate, islice
from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.format.properties import encode_properties
from flintmq.format.stored.batch import join_properties, walk_batch
from flintmq.format.stored.record_encoding import encode_unplaced, unplaced_gap
from flintmq.format.stored.record_layout import (
    FIXED_SIZES,
    PROPERTIES_LENGTH_MAX,
    TOPIC_LENGTH_SIZE,
)
from flintmq.format.sys_flag import (
    HOSTS_MASK,
    TRANSACTION_MASK,
    TRANSACTION_NONE,
    with_hosts,
)
from flintmq.model.property_names import DELIVERY_TIMES
from flintmq.store.appending.put_admission import PutRefusedError, illegal
from flintmq.store.results import PutStatus

if TYPE_CHECKING:
    from flintmq.model.message import MessageBatch
    from flintmq.model.steps import Steps
    from flintmq.store.appending.put_admission import PutAdmission

BATCH_COUNT_MAX: Final = 65_536
STEP_COUNT_MAX: Final = 128
STEP_SIZE_MAX: Final = 128 << 10
"""Messages of one step, and bytes of bodies and properties, of which the last may bring more."""
_DELIVERY_TIMES: Final = frozenset(DELIVERY_TIMES)


class PreparedBatch(NamedTuple):
    """A batch that can be appended as soon as there is room for it."""

    batch: MessageBatch
    topic_part: bytes
    """The topic as it stands in a record, with its length before it."""
    sizes: list[int]
    """The sizes of the records."""
    records: bytearray
    """The records, one behind the other, without their offsets and their origin."""
    text_sizes: list[int]
    """The sizes of the properties of each message, with those of the batch, which end its record.
    """
    space_count: int
    """Spaces in them: each may stand between two keys."""

    @property
    def held_size(self) -> int:
        """Bytes of memory that it takes, about."""
        return len(self.records) + len(self.sizes) * _NUMBERS_SIZE

    @property
    def texts(self) -> list[bytes]:
        """The properties of each message, with those of the batch."""
        records, ends = self.records, accumulate(self.sizes)
        return [
            bytes(records[end - size : end])
            for end, size in zip(ends, self.text_sizes, strict=True)
        ]


_NUMBERS_SIZE: Final = 80
"""What the sizes of a message take in Python at most, with their places in lists."""


def prepare_batch(batch: MessageBatch, admission: PutAdmission) -> Steps[PreparedBatch]:
    """Check a batch and return what is left to append; it may be interrupted where it yields.

    Raises:
        PutRefusedError: no store takes it.
        BatchError: its body is no batch.
    """
    shared = _checked_text(batch, admission)
    admission.check_lengths(batch.topic, shared, 0)
    topic_part = admission.topic_parts.get(batch.topic) or admission.topic_part(batch.topic)
    sys_flag = with_hosts(batch.sys_flag, born_host=batch.born_host, store_host=batch.store_host)
    fixed_size = FIXED_SIZES[sys_flag & HOSTS_MASK] - TOPIC_LENGTH_SIZE + len(topic_part)
    gap, records = unplaced_gap(sys_flag), bytearray()
    sizes, text_sizes = list[int](), list[int]()
    queue_id, space_count, longest, done_size = batch.queue_id, 0, 0, 0
    multi_dispatch = admission.multi_dispatch
    items = walk_batch(batch.body, count_max=BATCH_COUNT_MAX)
    while step := list(islice(items, STEP_COUNT_MAX)):
        for flag, body, own in step:
            text = join_properties(own, shared)
            longest = max(longest, len(text))
            if longest > PROPERTIES_LENGTH_MAX:
                continue
            if multi_dispatch:
                admission.check_further_offsets(text)
            record = encode_unplaced(fixed_size, queue_id, flag, gap, body, topic_part, text)
            records += record
            sizes.append(len(record))
            text_sizes.append(len(text))
            space_count += text.count(b" ")
            done_size += len(record)
            if done_size > STEP_SIZE_MAX:
                done_size = 0
                yield
        yield
    if not longest and not sizes:
        raise illegal("the batch is empty")
    if longest > PROPERTIES_LENGTH_MAX:
        raise PutRefusedError(PutStatus.PROPERTIES_SIZE_EXCEEDED, f"{longest} bytes of properties")
    return PreparedBatch(batch, topic_part, sizes, records, text_sizes, space_count)


def _checked_text(batch: MessageBatch, admission: PutAdmission) -> bytes:
    """Refuse what no batch may be; return the properties text that its messages share."""
    size_max = admission.body_size_max
    if len(batch.body) > size_max:
        raise illegal(f"batch of {len(batch.body)} bytes, at most {size_max}")
    is_delayed = admission.delay_level(batch.properties) > 0
    if batch.sys_flag & TRANSACTION_MASK != TRANSACTION_NONE or is_delayed:
        raise illegal("a batch is neither half nor delayed")
    if not _DELIVERY_TIMES.isdisjoint(batch.properties):
        raise illegal("a batch has no time of delivery")
    admission.check_queue_id(batch.queue_id)
    text = batch.properties_text
    return encode_properties(batch.properties) if text is None else text
