"""A batch that is prepared in steps, with puts between them, gives the bytes of one put at once."""

import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.format.stored.batch import BatchItem, encode_batch
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
