"""A sound store is made of everything that can be proven in a broken one."""

import json
from pathlib import Path
from random import Random

import pytest

from flintmq.cli.main import run
from flintmq.format import fastjson
from flintmq.format.stored.consume_queue import UNIT
from flintmq.format.stored.record import CheckedRecord
from flintmq.offline import OutputError, SalvageReport, find_store, salvage
from flintmq.offline.salvaging.queue_numbering import QueueNumbering
from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from tests.kits.store.offline_stores import (
    LEVELS,
    LOG_FILE_SIZE,
    START_MS,
    check,
    content,
    fingerprint,
    flip,
    log_file,
    make_store,
    message,
    overwrite,
    problems,
    queue_file,
    small_config,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def saved(root: Path, out: Path) -> SalvageReport:
    """Salvage a store; the result must be sound and be served."""
    before = fingerprint(root)
    report = salvage(find_store(root), out, delay_levels=LEVELS)
    assert fingerprint(root) == before
    verified = check(out)
    assert verified.is_sound, list(verified.findings)
    assert verified.record_count == report.record_count
    return report


def served(root: Path) -> dict[int, list[bytes]]:
    """Return the bodies that the engine serves, for each queue of the topic."""
    found: dict[int, list[bytes]] = {}
    with MessageStore.open(small_config(root), background=False) as store:
        report = store.recovery_report
        assert (report.damaged_range_count, report.lost_ranges) == (0, []), report
        for queue_id in range(2):
            bodies = found[queue_id] = []
            offset = store.min_offset_in_queue("orders", queue_id)
            while offset < store.max_offset_in_queue("orders", queue_id):
                result = store.get_messages("orders", queue_id, offset, 32)
                assert result is not None
                with result:
                    assert len(result)
                    for view in result:
                        record = store.look(int.from_bytes(view[28:36], "big"))
                        assert record is not None
                        bodies.append(bytes(record.body))
                    offset = result.next_begin_offset
    return found


def bodies_of(numbers: list[int]) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {0: [], 1: []}
    for number in numbers:
        found[number % 2].append(message(number).body)
    return found


def offset_of(root: Path, number: int) -> int:
    """Return the physical offset of a message."""
    at = number // 2
    units = list(UNIT.iter_unpack(queue_file(root, number % 2, at // 20).read_bytes()))
    return int(units[at % 20][0])


def test_a_sound_store_is_copied_as_it_is(root: Path, tmp_path: Path) -> None:
    report = saved(root, tmp_path / "out")
    assert (report.record_count, report.damage_count, report.renumbered) == (100, 0, {})
    for name in ("commitlog", "consumequeue"):
        assert content(tmp_path / "out" / name) == content(root / name)
    assert served(tmp_path / "out") == bodies_of(list(range(100)))


def test_damage_is_left_out_and_offsets_move_up(root: Path, tmp_path: Path) -> None:
    for number in (10, 51):
        at = offset_of(root, number)
        flip(log_file(root, at // LOG_FILE_SIZE), at % LOG_FILE_SIZE + 90)
    (root / "config").mkdir()
    offsets = {"orders@g": {0: 30, 1: 20}, "orders@h": {0: 5, 1: 26}, "other@g": {0: 7}}
    (root / "config" / "consumerOffset.json").write_text(fastjson.dumps({"offsetTable": offsets}))
    report = saved(root, tmp_path / "out")
    assert (report.record_count, report.checksum_count) == (98, 2)
    assert report.renumbered == {"orders/0": 6, "orders/1": 26}
    kept = [number for number in range(100) if number not in (10, 51)]
    moved = fastjson.loads((tmp_path / "out" / "config" / "consumerOffset.json").read_bytes())
    assert moved["offsetTable"]["orders@g"] == {0: 29, 1: 20}
    assert moved["offsetTable"]["orders@h"] == {0: 5, 1: 25}
    assert moved["offsetTable"]["other@g"] == {0: 7}
    assert served(tmp_path / "out") == bodies_of(kept)


def test_garbage_missing_files_and_lost_views_are_survived(root: Path, tmp_path: Path) -> None:
    garbage = Random(4).randbytes(3000)
    offsets = [offset_of(root, number) for number in range(100)]
    # It begins in a body: no checksum covers properties.
    start = next(offset for offset in offsets if offset > LOG_FILE_SIZE) + 95
    overwrite(log_file(root, 1), start - LOG_FILE_SIZE, garbage)
    gone = int(log_file(root, 3).name)
    log_file(root, 3).unlink()
    for path in (root / "index").iterdir():
        path.unlink()
    ends = [*offsets[1:], 1 << 60]
    kept = [
        number
        for number, offset in enumerate(offsets)
        if not (offset < start + 3000 and start < ends[number])
        and not gone <= offset < gone + LOG_FILE_SIZE
    ]
    report = salvage(find_store(root), tmp_path / "out", delay_levels=LEVELS, with_index=False)
    assert report.record_count == len(kept)
    assert check(tmp_path / "out", check_index=False).is_sound
    assert served(tmp_path / "out") == bodies_of(kept)


def test_what_was_set_aside_is_saved_too(tmp_path: Path) -> None:
    root = tmp_path / "store"
    clock = ManualClock(START_MS)
    store = MessageStore.open(small_config(root), clock=clock, background=False)
    for number in range(40):
        store.put(message(number))
        clock.advance(1000)
    store.dispatch()
    store.close()
    at = offset_of(root, 20)
    (root / "checkpoint").unlink()
    (root / "abort").touch()  # Without a boot id it may have been a power failure.
    overwrite(log_file(root, at // LOG_FILE_SIZE), at % LOG_FILE_SIZE + 96, bytes(16))
    with MessageStore.open(small_config(root), clock=clock, background=False) as store:
        assert store.recovery_report.records_set_aside == 19
        for number in range(100, 110):
            store.put(message(number))
    report = saved(root, tmp_path / "out")
    assert (report.record_count, report.set_aside_count) == (20 + 10 + 19, 19)
    numbers = [*range(20), *range(100, 110), *range(21, 40)]
    assert served(tmp_path / "out") == bodies_of(numbers)


def test_the_directory_must_be_free(root: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for output in (tmp_path / "full", root, root / "inside"):
        with pytest.raises(OutputError):
            salvage(find_store(root), output, delay_levels=LEVELS)


def test_the_command_tells_what_it_saved(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = offset_of(root, 10)
    flip(log_file(root, at // LOG_FILE_SIZE), at % LOG_FILE_SIZE + 90)
    assert run(["store", "salvage", str(root), "--out", str(tmp_path / "a")]) == 1
    text = capsys.readouterr().out
    assert "saved     99 records" in text
    assert "moved     orders/0: other queue offsets from 6 on" in text
    arguments = ["store", "salvage", str(root), "--out", str(tmp_path / "b"), "--format", "json"]
    assert run(arguments) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["recordCount"], report["renumbered"]) == (99, {"orders/0": 6})
    assert run(["store", "salvage", str(tmp_path / "a"), "--out", str(tmp_path / "c")]) == 0
    assert run(["store", "salvage", str(root), "--out", str(tmp_path / "c")]) == 2
    assert problems(check(tmp_path / "b")) == {}


def test_consumers_go_on_at_the_next_record_there_is() -> None:
    numbers = QueueNumbering()

    def take(offset: int) -> int:
        return numbers.number(CheckedRecord(100, 0, offset, 0, 0, 0, b"T", b"", 0))

    assert [take(offset) for offset in (3, 4, 7, 8, 12)] == [3, 4, 5, 6, 7]
    key = ("T", 0)
    moved = [numbers.moved(key, offset) for offset in range(3, 15)]
    assert moved == [3, 4, 5, 5, 5, 6, 7, 7, 7, 7, 8, 8]
    assert numbers.moved(("U", 0), 9) == 9
    assert numbers.renumbered() == {key: 7}
