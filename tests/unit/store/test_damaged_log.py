"""What a start does with damage in the log that is not the torn end of the last write."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from flintmq.store.config import DamagedLogPolicy
from flintmq.store.errors import DiskFullError, StoreLoadError
from flintmq.store.log.torn_write import lacks_words
from flintmq.store.recovery.damage import OLDER, TORN, UNPROVEN
from flintmq.testing import ROOT, SimulatedCrash, SimulatedFiles
from tests.kits.store.store_kit import (
    LOG,
    bodies,
    message,
    new_files,
    open_store,
    records,
    turn,
)

GARBAGE = Random(1).randbytes(4096).replace(b"\0", b"\1")
RECOVERED = ROOT / "recovered"


def put_all(files: SimulatedFiles, sent: Sequence[bytes], *, dispatch: bool = True) -> list[int]:
    """Put messages into a store that is then left as it is; return where they are."""
    store = open_store(files)
    offsets = []
    for body in sent:
        offsets.append(store.put(message(body, properties={"KEYS": "k"})).physical_offset)
        turn(store, 1)
    if dispatch:
        store.dispatch()
    return offsets


def damage(files: SimulatedFiles, offset: int, data: bytes) -> None:
    path = LOG / f"{offset // 4096 * 4096:020d}"
    content = bytearray(files.read(path))
    content[offset % 4096 : offset % 4096 + len(data)] = data
    files.write(path, bytes(content))
    files.sync(path)


def numbered(count: int) -> list[bytes]:
    return [b"body %d" % number for number in range(count)]


def content_of(files: SimulatedFiles, directory: Path = ROOT) -> dict[Path, bytes]:
    found: dict[Path, bytes] = {}
    for entry in files.list(directory):
        path = directory / entry.name
        found |= content_of(files, path) if entry.is_directory else {path: bytes(files.read(path))}
    return found


def record_for(offset: int) -> bytes:
    """Return a whole record that says it stands at an offset."""
    files = new_files()
    put_all(files, [b"x" * 30])
    raw = files.read(LOG / f"{0:020d}")
    record = bytearray(raw[: int.from_bytes(raw[:4], "big")])
    record[28:36] = offset.to_bytes(8, "big")
    return bytes(record)


def rebooted(files: SimulatedFiles) -> SimulatedFiles:
    """Return what a power failure leaves if the disk had taken everything."""
    images = files.crash_images(Random(0), 0)
    next(images)
    return next(images)


# -- stepped over ----------------------------------------------------------------------------


@pytest.mark.parametrize("dispatch", [True, False], ids=["dispatched", "not dispatched"])
@pytest.mark.parametrize("size", [1, 100, 1000, 3000])
def test_garbage_in_the_middle_costs_only_the_records_it_hits(
    size: int, dispatch: bool, caplog: pytest.LogCaptureFixture
) -> None:
    files = new_files()
    sent = numbered(60)
    offsets = put_all(files, sent, dispatch=dispatch)
    image = files.process_crash_image()
    start = offsets[5] + 90
    damage(image, start, GARBAGE[:size])
    ends = [*offsets[1:], 1 << 60]
    hit = {n for n, offset in enumerate(offsets) if offset < start + size and start < ends[n]}
    with caplog.at_level(logging.WARNING):
        store = open_store(image)
    report = store.recovery_report
    assert bodies(store) == [body for number, body in enumerate(sent) if number not in hit]
    assert report.damaged_ranges[0].start == offsets[5]
    assert report.damaged_range_count == 1
    assert report.records_behind_damage == 60 - 5 - len(hit)
    assert f"kept {report.records_behind_damage} records behind them" in caplog.text
    assert f"first at {offsets[5]}" in caplog.text
    # The offsets of what is lost are not given to anybody else.
    assert store.put(message(b"new")).queue_offset == 60
    store.dispatch()
    store.close()
    again = open_store(image)
    assert bodies(again)[-1] == b"new"
    assert (again.recovery_report.units_rebuilt, again.recovery_report.problems) == (0, [])


def test_zeros_in_the_middle_are_stepped_over_while_the_machine_runs_on() -> None:
    files = new_files()
    sent = numbered(60)
    offsets = put_all(files, sent)
    image = files.process_crash_image()
    damage(image, offsets[4], bytes(offsets[6] - offsets[4]))
    store = open_store(image)
    assert bodies(store) == sent[:4] + sent[6:]
    assert not image.exists(RECOVERED)


@pytest.mark.parametrize("kill", [True, False])
def test_the_offset_of_a_damaged_last_record_is_not_given_again(kill: bool) -> None:
    files = new_files()
    store = open_store(files)
    for number in range(3):
        store.put(message(b"%d" % number, queue_id=1))
    last = store.put(message(b"last", queue_id=1))
    store.put(message(b"other"))
    store.dispatch()
    image = files.process_crash_image()
    damage(image, last.physical_offset + 88, b"LAST")
    for _ in range(3):
        store = open_store(image)
        assert bodies(store, "T", 1) == [b"0", b"1", b"2"]
        assert store.max_offset_in_queue("T", 1) == 4
        if kill:
            image = image.process_crash_image()
        else:
            store.close()
    assert store.recovery_report.problems == []
    store = open_store(image)
    assert store.put(message(b"new", queue_id=1)).queue_offset == 4
    store.dispatch()
    assert bodies(store, "T", 1) == [b"0", b"1", b"2", b"new"]


def test_several_damaged_places_are_all_stepped_over() -> None:
    files = new_files()
    sent = numbered(60)
    offsets = put_all(files, sent)
    image = files.process_crash_image()
    for number in (3, 17, 18, 40):
        damage(image, offsets[number] + 88, b"BODY")
    store = open_store(image)
    assert bodies(store) == [sent[n] for n in range(60) if n not in (3, 17, 18, 40)]
    assert store.recovery_report.damaged_range_count == 3


def test_a_file_that_is_missing_in_the_middle_is_stepped_over() -> None:
    files = new_files()
    sent = numbered(120)
    offsets = put_all(files, sent)
    image = files.process_crash_image()
    image.remove(LOG / f"{4096:020d}")
    store = open_store(image)
    assert bodies(store) == [
        body for body, offset in zip(sent, offsets, strict=True) if offset // 4096 != 1
    ]
    assert "does not follow" in store.recovery_report.damaged_ranges[0].reason


def test_the_rest_of_a_file_may_be_damaged() -> None:
    files = new_files()
    sent = numbered(120)
    offsets = put_all(files, sent)
    image = files.process_crash_image()
    start = offsets[20]
    damage(image, start, GARBAGE[: 4096 - start % 4096])
    expected = [
        body
        for body, offset in zip(sent, offsets, strict=True)
        if not start <= offset < start - start % 4096 + 4096
    ]
    assert bodies(open_store(image)) == expected


def test_records_in_a_body_are_not_taken_for_records() -> None:
    """A body holds a copy of a record with the offset of its place and a true checksum."""
    files = new_files()
    store = open_store(files)
    store.put(message(b"before"))
    at = store.log.end_offset
    store.put(message(b"." * 50 + record_for(at + 88 + 50) + b"." * 50))
    store.put(message(b"behind"))
    store.dispatch()
    image = files.process_crash_image()
    damage(image, at, GARBAGE[:60])
    recovered = open_store(image)
    assert bodies(recovered) == [b"before", b"behind"]


def test_without_queues_records_that_go_on_to_the_end_are_proof_enough() -> None:
    files = new_files()
    sent = numbered(40)
    offsets = put_all(files, sent, dispatch=False)
    image = files.process_crash_image()
    damage(image, offsets[5], GARBAGE[:200])
    store = open_store(image)
    assert bodies(store)[:5] == sent[:5]
    assert bodies(store)[-30:] == sent[-30:]


# -- set aside -------------------------------------------------------------------------------


def torn(count: int = 60) -> tuple[SimulatedFiles, list[int], list[bytes]]:
    """Return a store after a power failure that has taken some words in the middle."""
    files = new_files()
    sent = numbered(count)
    offsets = put_all(files, sent)
    image = rebooted(files)
    damage(image, (offsets[5] + 95) // 8 * 8, bytes(8))
    return image, offsets, sent


def test_what_a_power_failure_may_have_torn_is_cut_off_and_set_aside(
    caplog: pytest.LogCaptureFixture,
) -> None:
    image, offsets, sent = torn()
    before = content_of(image, LOG)
    with caplog.at_level(logging.WARNING):
        store = open_store(image)
    report = store.recovery_report
    assert bodies(store) == sent[:5]
    assert (report.log_end, report.records_set_aside) == (offsets[5], 54)
    assert report.set_aside_reason == TORN
    name = f"{offsets[5]:020d}.cut"
    assert report.set_aside[0] == f"recovered/{name}"
    log_file = before[LOG / f"{0:020d}"]
    assert image.read(RECOVERED / name) == log_file[offsets[5] :]
    facts = json.loads(image.read(RECOVERED / f"{offsets[5]:020d}.json"))
    assert facts["physicalOffset"] == offsets[5]
    assert (facts["records"], facts["reason"], facts["logFileSize"]) == (54, TORN, 4096)
    assert "messages=54" in caplog.text
    assert name in caplog.text
    assert "store salvage" in caplog.text


def test_what_was_set_aside_is_on_the_disk_before_anything_is_cut_off() -> None:
    image, offsets, _ = torn()
    whole = image.process_crash_image()
    open_store(whole)
    for call in whole.change_numbers():
        again = image.process_crash_image()
        again.crash_at = call
        with pytest.raises(SimulatedCrash):
            open_store(again)
        for found in again.crash_images(Random(call), 2):
            found.boot_number = 99
            store = open_store(found)
            report = store.recovery_report
            cut = [one for one in found.list(RECOVERED) if one.name.endswith(".cut")]
            assert report.log_end == offsets[5]
            assert sum(one.name.startswith(f"{offsets[5]:020d}") for one in cut) == 1


def test_a_log_that_is_cut_twice_at_one_place_keeps_both() -> None:
    image, offsets, _ = torn()
    store = open_store(image)
    for number in range(30):
        store.put(message(b"again %d" % number, properties={"KEYS": "k"}))
    store.dispatch()
    second = rebooted(image)
    damage(second, (offsets[5] + 95) // 8 * 8, bytes(8))
    open_store(second)
    names = {entry.name for entry in second.list(RECOVERED)}
    assert {f"{offsets[5]:020d}.cut", f"{offsets[5]:020d}-1.cut"} <= names


def test_a_full_disk_keeps_the_log_as_it_is() -> None:
    image, _, _ = torn()
    before = content_of(image, LOG)
    image.capacity = image._disk.used()
    with pytest.raises(DiskFullError):
        open_store(image)
    assert content_of(image, LOG) == before
    image.capacity = None
    assert open_store(image).recovery_report.records_set_aside == 54


def test_what_is_older_than_the_records_before_it_is_set_aside() -> None:
    """A Java broker that cuts its log back leaves the bytes, and writes over them from there."""
    files = new_files()
    sent = numbered(30)
    offsets = put_all(files, sent)
    old = files.read(LOG / f"{0:020d}")
    other = new_files()
    with open_store(other) as store:
        turn(store, 10_000_000)
    other_offsets = put_all(other, [b"newer %d" % n for n in range(3)])
    image = other.process_crash_image()
    end = other_offsets[-1] + 120
    assert offsets[5] > end
    damage(image, offsets[5], old[offsets[5] : offsets[12]])
    store = open_store(image)
    assert len(bodies(store)) == 3
    assert store.recovery_report.set_aside_reason == OLDER
    assert store.recovery_report.records_set_aside == 7


def test_what_nothing_proves_is_set_aside() -> None:
    files = new_files()
    store = open_store(files)
    store.put(message(b"first"))
    at = store.log.end_offset
    store.put(message(b"." * 50 + record_for(at + 88 + 50) + b"." * 50))
    image = files.process_crash_image()
    damage(image, at, GARBAGE[:60])
    recovered = open_store(image)
    assert bodies(recovered) == [b"first"]
    assert recovered.recovery_report.set_aside_reason == UNPROVEN
    assert recovered.recovery_report.records_set_aside == 1


def test_nothing_is_set_aside_behind_the_torn_end_of_the_last_write() -> None:
    files = new_files()
    offsets = put_all(files, numbered(10))
    for image in (rebooted(files), files.process_crash_image()):
        damage(image, offsets[9] + 60, bytes(40))
        store = open_store(image)
        assert (len(bodies(store)), store.recovery_report.records_set_aside) == (9, 0)
        assert not image.exists(RECOVERED)


# -- refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize("reboot", [True, False])
def test_a_start_can_be_refused_instead(reboot: bool) -> None:
    files = new_files()
    offsets = put_all(files, numbered(60))
    image = rebooted(files) if reboot else files.process_crash_image()
    damage(image, offsets[5] + 40, bytes(60))
    before = content_of(image)
    with pytest.raises(StoreLoadError, match=rf"damaged at {offsets[5]}, and 54 whole records"):
        open_store(image, damaged_log_policy=DamagedLogPolicy.REFUSE)
    assert content_of(image) == before
    assert len(records(open_store(image))) == (5 if reboot else 59)


def test_a_torn_end_does_not_refuse_the_start() -> None:
    files = new_files()
    offsets = put_all(files, numbered(10))
    image = files.process_crash_image()
    damage(image, offsets[9] + 60, bytes(40))
    store = open_store(image, damaged_log_policy=DamagedLogPolicy.REFUSE)
    assert len(bodies(store)) == 9


# -- words that never arrived ----------------------------------------------------------------


def test_zeros_of_a_header_are_no_missing_words() -> None:
    files = new_files()
    offsets = put_all(files, numbered(3))
    view = memoryview(bytearray(files.read(LOG / f"{0:020d}")))
    assert not lacks_words(view, offsets[1], offsets[2], 0)
    at = (offsets[1] + 95) // 8 * 8
    view[at : at + 8] = bytes(8)
    assert lacks_words(view, offsets[1], offsets[2], 0)
