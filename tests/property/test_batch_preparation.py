"""A batch that is prepared in steps, with puts between them, gives the bytes of one put at once."""

import tempfile
from contextlib import AbstractContextManager
from itertools import accumulate
from pathlib import Path
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.stored.record_encoding import (
    encode_record,
    encode_topic,
    encode_unplaced,
    pack_origin,
    place_records,
    unplaced_gap,
)
from flintmq.format.stored.record_layout import FIXED_SIZES, TOPIC_LENGTH_SIZE
from flintmq.format.sys_flag import HOSTS_MASK, with_hosts
from flintmq.model.message import MessageBatch, PutMessage
from flintmq.store.appending import batch_preparation
from flintmq.store.appending.batch_preparation import PreparedBatch
from flintmq.store.message_store import MessageStore
from tests.kits.store.plain_store import opened_without_machine_code

HOST: Final = b"\x7f\0\0\1\0\0\x2a\x9f"
IPV6_HOST: Final = bytes(range(16)) + b"\0\0\x2a\x9f"
hosts = st.sampled_from([HOST, IPV6_HOST])
texts = st.lists(
    st.tuples(st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "other"]), st.text("ab ", max_size=6)),
    max_size=3,
).map(lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode())
items = st.builds(
    BatchItem,
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.binary(max_size=40),
    texts | texts.map(lambda text: text[:-1]),
)
batches = st.builds(
    MessageBatch,
    topic=st.sampled_from(["T", "über"]),
    queue_id=st.integers(0, 3),
    body=st.lists(items, min_size=1, max_size=40).map(encode_batch),
    properties=st.just({}),
    properties_text=st.none() | texts,
    sys_flag=st.sampled_from([0, 1]),
    born_timestamp=st.integers(0, 1 << 50),
    born_host=hosts,
    store_host=hosts,
    reconsume_times=st.integers(0, 5),
)


def opened(root: Path) -> AbstractContextManager[MessageStore]:
    return opened_without_machine_code(root, log_file_size=1 << 16)


def message(number: int) -> PutMessage:
    return PutMessage(
        topic="T",
        queue_id=number % 4,
        body=b"m%d" % number,
        properties={"KEYS": f"k{number}"},
        born_timestamp=number,
        born_host=HOST,
        store_host=HOST,
    )


def files_below(root: Path) -> dict[str, bytes]:
    found = (path for name in ("commitlog", "consumequeue") for path in (root / name).rglob("*"))
    return {str(path.relative_to(root)): path.read_bytes() for path in found if path.is_file()}


@settings(max_examples=60, deadline=None)
@given(batch=batches, step_size=st.integers(1, 8), before=st.integers(0, 3))
def test_steps_give_the_same_files(batch: MessageBatch, step_size: int, before: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        one, other = Path(name, "one"), Path(name, "other")
        count, step_count_max = 0, batch_preparation.STEP_COUNT_MAX
        batch_preparation.STEP_COUNT_MAX = step_size  # type: ignore[misc]
        try:
            with opened(other) as store:
                steps = store.prepare_batch(batch)
                while True:
                    try:
                        next(steps)
                    except StopIteration as done:
                        ready = done.value
                        break
                    if count < before:
                        assert store.put(message(count)).ok
                        count += 1
                assert isinstance(ready, PreparedBatch)
                in_steps = store.put_prepared(ready)
        finally:
            batch_preparation.STEP_COUNT_MAX = step_count_max  # type: ignore[misc]
        with opened(one) as store:
            for number in range(count):
                assert store.put(message(number)).ok
            at_once = store.put_batch(batch)
        assert (in_steps.message_id, in_steps.queue_offset) == (
            at_once.message_id,
            at_once.queue_offset,
        )
        assert in_steps.ok
        assert files_below(one) == files_below(other)


@settings(max_examples=100, deadline=None)
@given(
    chosen=st.lists(items, min_size=1, max_size=20),
    form=st.tuples(hosts, hosts),
    at=st.lists(st.tuples(st.integers(0, 1 << 62), st.integers(0, 1 << 62)), min_size=1),
)
def test_records_that_are_placed_last_are_those_that_are_written_at_once(
    chosen: list[BatchItem], form: tuple[bytes, bytes], at: list[tuple[int, int]]
) -> None:
    born_host, store_host = form
    sys_flag = with_hosts(1, born_host=born_host, store_host=store_host)
    topic_part, gap = encode_topic(b"T"), unplaced_gap(sys_flag)
    fixed_size = FIXED_SIZES[sys_flag & HOSTS_MASK] - TOPIC_LENGTH_SIZE + len(topic_part)
    unplaced = [
        encode_unplaced(fixed_size, 3, flag, gap, body, topic_part, text)
        for flag, body, text in chosen
    ]
    records, sizes = bytearray().join(unplaced), list(map(len, unplaced))
    for queue_offset, offset in at:  # The last place is what counts.
        origin = pack_origin(sys_flag, 5, born_host, offset, store_host, 2, 0)
        queue_offsets = range(queue_offset, queue_offset + len(sizes))
        offsets = list(accumulate(sizes[:-1], initial=offset))
        place_records(records, sizes, queue_offsets, offsets, origin)
    assert bytes(records) == b"".join(
        encode_record(
            b"T",
            3,
            item.flag,
            queue_offset,
            physical_offset,
            sys_flag,
            5,
            born_host,
            offset,
            store_host,
            2,
            0,
            item.body,
            item.properties,
        )
        for item, queue_offset, physical_offset in zip(chosen, queue_offsets, offsets, strict=True)
    )
