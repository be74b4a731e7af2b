"""A store with damaged files either refuses to open with a typed error or serves nothing false."""

from contextlib import suppress
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flintmq.errors import FlintError
from flintmq.store.message_store import MessageStore
from flintmq.testing import ROOT
from tests.kits.store.damaged_stores import Damage, damages, stopped
from tests.kits.store.store_ledger import Ledger, assert_true
from tests.kits.store.store_workload import VARIANTS, Driver

LOG_DIRECTORIES: Final = ("commitlog", "disk0", "disk1")


READ_COUNT_MAX: Final = 4000
"""A damaged queue offset may leave a hole of 65,000 units, which are read 20 at a time."""

stores = st.sampled_from(["async", "sync", "ext", "multi", "deleting"])


def _served_truly(store: MessageStore, ledger: Ledger, damaged: set[int]) -> None:
    """Assert that every read gives records of the ledger, unless their own bytes were hit."""
    true = {entry.raw: entry for entry in ledger.entries}
    for queue in store.queues:
        key = (queue.topic, queue.queue_id)
        offset = queue.min_offset
        for _ in range(READ_COUNT_MAX):
            result = store.get_messages(*key, offset, 5)
            assert result is not None
            with result:
                for queue_offset, view in zip(result.queue_offsets, result, strict=True):
                    entry = true.get(bytes(view))
                    start = int.from_bytes(view[28:36], "big")
                    if entry is None:
                        assert damaged.intersection(range(start, start + len(view)))
                    else:
                        assert (key, queue_offset) in entry.units
                if result.next_begin_offset <= offset or offset >= queue.max_offset:
                    break
                offset = result.next_begin_offset
        else:
            pytest.fail(f"reading {key} does not come to an end")
        for time in (0, 1_700_000_010_000, 1 << 60):
            assert store.offset_by_time(*key, time) >= 0
        store.earliest_time(*key)
    for number in range(10):
        for topic in ("T0", "T1"):
            query = store.query(topic, f"k{number}", 64, 0, 1 << 62)
            for piece in query.slices:
                start = int.from_bytes(piece.view[28:36], "big")
                assert bytes(piece.view) in true or damaged.intersection(
                    range(start, start + piece.size)
                )
            query.release()


@settings(
    max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(name=stores, cleanly=st.booleans(), harm=st.lists(damages, min_size=1, max_size=3))
def test_whatever_is_damaged_nothing_false_is_served(
    name: str, cleanly: bool, harm: list[Damage]
) -> None:
    found = stopped(name, cleanly=cleanly)
    files = found.files.process_crash_image()
    damaged: set[int] = set()
    hit = {damage.path_number % len(found.paths): damage for damage in harm}
    for damage in hit.values():
        path, places = damage.apply(found, files)
        if path.parent.name in LOG_DIRECTORIES:
            damaged.update(int(path.name) + place for place in places)
    try:
        store = found.variant.open(files)
    except FlintError:
        # It must say so again: a start that fails leaves no half-repaired store behind.
        with suppress(FlintError):
            found.variant.open(files)
        return
    _served_truly(store, found.ledger, damaged)
    driver = Driver(found.variant, files, seed=1, ledger=found.variant.new_ledger())
    driver.store = store
    for _ in range(3):
        assert store.put(driver._message()).ok
    store.dispatch()
    store.close()
    again = found.variant.open(files)
    again.close()


@pytest.mark.parametrize("value", [0x00, 0x2F, 0x80, 0xFF])
def test_any_byte_of_a_record_that_was_not_flushed_may_be_damaged(value: int) -> None:
    variant = VARIANTS["async"]
    files = variant.new_files()
    driver = Driver(variant, files, seed=2)
    driver.open()
    for _ in range(3):
        driver.put()
    log = ROOT / "commitlog" / f"{0:020d}"
    content = files.read(log)
    for entry in driver.ledger.entries:
        for at in range(entry.offset, entry.end):
            image = files.process_crash_image()
            image.write(log, content[:at] + bytes([value]) + content[at + 1 :])
            store = variant.open(image)
            _served_truly(store, driver.ledger, {at})
            store.close()
            assert not variant.open(image).recovery_report.records_scanned


@settings(
    max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(name=stores, cleanly=st.booleans(), harm=damages)
def test_a_damaged_checkpoint_costs_nothing_but_time(
    name: str, cleanly: bool, harm: Damage
) -> None:
    found = stopped(name, cleanly=cleanly)
    files = found.files.process_crash_image()
    number = found.paths.index(ROOT / "checkpoint")
    harm._replace(path_number=number).apply(found, files)
    assert_true(found.variant.open(files), found.ledger, least=found.ledger.acknowledged)


@settings(
    max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(name=stores, number=st.integers(0, 999), size=st.integers(0, 100), cleanly=st.booleans())
def test_a_view_file_of_a_wrong_size_is_made_anew(
    name: str, number: int, size: int, cleanly: bool
) -> None:
    found = stopped(name, cleanly=cleanly)
    files = found.files.process_crash_image()
    views = [path for path in found.paths if {"consumequeue", "index"} & set(path.parts)]
    path = views[number % len(views)]
    files.write(path, files.read(path)[:size])
    store = found.variant.open(files)
    assert store.recovery_report.problems
    assert_true(store, found.ledger, least=found.ledger.acknowledged)
