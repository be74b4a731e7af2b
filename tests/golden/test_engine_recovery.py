"""Damaged and killed stores recover to what Java makes of them, or to something better."""

from pathlib import Path
from typing import Final

import pytest

from flintmq.store.errors import StoreLoadError
from flintmq.store.message_store import MessageStore
from tests.kits.golden.engine import (
    assert_serves,
    config_of,
    copy_store,
    index_entries_in,
    index_entries_of,
    served_offsets,
)
from tests.kits.golden.golden_sets import DAMAGED_SET_NAMES, damaged_set, golden_set

BETTER: Final = {
    # (damage, abort present): what Java loses and we do not; see docs/compatibility.md.
    ("consumequeue-behind", False): "Java loses the missing units of the other queues",
    ("no-consumequeue", True): "Java's queues start in mid-log",
    ("consumequeue-file-wrong-size", True): "Java refuses to start for a derived file",
    ("consumequeue-file-wrong-size", False): "Java refuses to start for a derived file",
}
KEPT: Final = {
    # Java ends the log at the damaged record; we step over it and keep what follows.
    "body-byte-flipped-last-file": 242602,
    "body-byte-flipped-previous-file": 206232,
    "record-length-wrong": 242602,
}
REFUSED: Final = {"commitlog-file-wrong-size"}


@pytest.mark.parametrize("abort", [True, False], ids=["abort", "clean-exit"])
@pytest.mark.parametrize("name", sorted(set(DAMAGED_SET_NAMES) - REFUSED - set(KEPT)))
def test_a_damaged_store_recovers_without_holes(name: str, abort: bool, tmp_path: Path) -> None:
    golden = damaged_set(name)
    expected = golden.expected("expected.json" if abort else "expected-clean-exit.json")
    root = copy_store(golden, tmp_path, abort=abort)
    java_refused = expected.get("refused", False)
    count = 385 if java_refused else expected["messages"]
    messages = golden_set("rolled").messages()[:count]
    with MessageStore.open(config_of(expected, root), background=False) as store:
        if not java_refused:
            assert store.log.readable_end == expected["maxPhyOffset"]
        assert_serves(store, messages)
        if (name, abort) not in BETTER:
            for topic, queues in expected["queues"].items():
                for queue_id, bounds in queues.items():
                    assert store.min_offset_in_queue(topic, int(queue_id)) == bounds["min"]
                    assert store.max_offset_in_queue(topic, int(queue_id)) == bounds["max"]
    # What was recovered stays so: the next start finds marks and nothing to do.
    with MessageStore.open(config_of(expected, root), background=False) as store:
        assert store.recovery_report.units_rebuilt == 0
        assert store.recovery_report.index_entries_rebuilt == 0
        assert_serves(store, messages)


@pytest.mark.parametrize("abort", [True, False], ids=["abort", "clean-exit"])
@pytest.mark.parametrize("name", sorted(KEPT))
def test_records_behind_damage_are_kept_where_java_cuts_them_off(
    name: str, abort: bool, tmp_path: Path
) -> None:
    golden = damaged_set(name)
    expected = golden.expected("expected.json" if abort else "expected-clean-exit.json")
    messages = golden_set("rolled").messages()
    damaged = next(one for one in messages if one["physicalOffset"] == KEPT[name])
    whole = [one for one in messages if one is not damaged]
    root = copy_store(golden, tmp_path, abort=abort)
    for start in range(2):
        with MessageStore.open(config_of(expected, root), background=False) as store:
            report = store.recovery_report
            if start == 0:
                assert [found.start for found in report.damaged_ranges] == [KEPT[name]]
                assert report.damaged_bytes == damaged["size"]
                assert report.records_behind_damage == len(messages) - messages.index(damaged) - 1
            else:
                assert (report.units_rebuilt, report.index_entries_rebuilt) == (0, 0)
            assert (report.records_set_aside, report.log_files_removed) == (0, [])
            assert store.log.readable_end == 249817 > expected["maxPhyOffset"]
            assert served_offsets(store) == [one["physicalOffset"] for one in whole]
            assert index_entries_in(store) == index_entries_of(whole)


@pytest.mark.parametrize(("name", "abort"), sorted(BETTER))
def test_what_is_called_better_differs_from_java(name: str, abort: bool, tmp_path: Path) -> None:
    golden = damaged_set(name)
    expected = golden.expected("expected.json" if abort else "expected-clean-exit.json")
    if expected.get("refused"):
        return
    root = copy_store(golden, tmp_path, abort=abort)
    with MessageStore.open(config_of(expected, root), background=False) as store:
        ours = {
            topic: {
                queue_id: (
                    store.min_offset_in_queue(topic, int(queue_id)),
                    store.max_offset_in_queue(topic, int(queue_id)),
                )
                for queue_id in queues
            }
            for topic, queues in expected["queues"].items()
        }
    java = {
        topic: {queue_id: (bounds["min"], bounds["max"]) for queue_id, bounds in queues.items()}
        for topic, queues in expected["queues"].items()
    }
    assert ours != java


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_foreign_file_in_the_log_refuses_the_start_and_touches_nothing(
    name: str, tmp_path: Path
) -> None:
    golden = damaged_set(name)
    assert golden.expected()["refused"]
    root = copy_store(golden, tmp_path, abort=True)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    with pytest.raises(StoreLoadError, match=r"00000000000000262144.*100 bytes instead of 32768"):
        MessageStore.open(config_of(golden.expected(), root), background=False)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["killed", "killed-early"])
def test_a_killed_store_recovers_every_acknowledged_message(name: str, tmp_path: Path) -> None:
    golden = golden_set(name)
    expected = golden.expected()
    recovered = golden_set(f"{name}-recovered").expected()
    root = copy_store(golden, tmp_path, abort=True)
    with MessageStore.open(config_of(expected, root), background=False) as store:
        assert store.log.readable_end == recovered["maxPhyOffset"]
        assert_serves(store, golden.messages())
        for offset in expected["acknowledgedOffsets"]:
            record = store.look(offset)
            assert record is not None
            assert record.crc_ok
        for topic, queues in recovered["queues"].items():
            for queue_id, bounds in queues.items():
                assert store.min_offset_in_queue(topic, int(queue_id)) == bounds["min"]
                assert store.max_offset_in_queue(topic, int(queue_id)) == bounds["max"]
        assert not store.recovery_report.clean_exit
        assert store.recovery_report.units_rebuilt > 0
