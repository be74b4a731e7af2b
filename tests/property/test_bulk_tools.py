"""The tools for whole stores say and write the same, record by record and in machine code."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from flintmq.errors import FlintError
from flintmq.format.delay_levels import DelayLevels
from flintmq.format.stored.record_layout import QUEUE_OFFSET_AT
from flintmq.format.sys_flag import host_sizes
from flintmq.offline import scan
from flintmq.offline.derive import Derivation
from flintmq.offline.findings import Findings
from flintmq.offline.log_files import LogFiles
from flintmq.offline.rebuild import rebuild
from flintmq.offline.regions import Regions
from flintmq.offline.salvaging.new_log import NewLog
from flintmq.offline.salvaging.store_salvage import salvage
from flintmq.offline.scan import LogScan
from flintmq.offline.verify.store_verify import verify
from flintmq.store.recovery import bulk_records, fast_walk
from flintmq.store.recovery.bulk_records import SortedKeys, SoundRecords
from flintmq.testing import SimulatedFiles
from tests.kits.store.damaged_stores import Damage, damages, paths_of, stopped
from tests.kits.store.store_workload import VARIANTS, Variant
from tests.kits.store.verified import layout_of

OUTPUT: Final = Path("/made")
NEVER: Final = 1 << 62
NOTHING: Final = Findings()


@pytest.fixture(autouse=True)
def many_small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_walk, "COMPILE_SIZE_MIN", 0)
    monkeypatch.setattr(bulk_records, "ROWS_MAX", 7)


def said(findings: Findings) -> object:
    """Return what was found; which queue is dealt with first is not promised."""
    details = sorted(map(repr, findings))
    return findings.counts, details


def verified(variant: Variant, files: SimulatedFiles) -> object:
    try:
        report = verify(layout_of(variant, files), delay_levels=levels_of(variant))
    except FlintError as error:
        return str(error)
    return dataclasses.replace(report, findings=NOTHING), said(report.findings)


def rebuilt(variant: Variant, files: SimulatedFiles) -> object:
    try:
        report = rebuild(
            layout_of(variant, files),
            OUTPUT,
            queues=True,
            index=True,
            delay_levels=levels_of(variant),
            files=files,
        )
    except FlintError as error:
        return str(error)
    made = {path: files.read(path) for path in paths_of(files, OUTPUT)}
    return dataclasses.replace(report, findings=NOTHING), said(report.findings), made


def salvaged(variant: Variant, files: SimulatedFiles) -> object:
    layout = layout_of(variant, files)
    try:
        report = salvage(layout, OUTPUT, delay_levels=levels_of(variant), files=files)
    except FlintError as error:
        return str(error)
    made = {path: files.read(path) for path in paths_of(files, OUTPUT)}
    return dataclasses.replace(report, findings=NOTHING), said(report.findings), made


def levels_of(variant: Variant) -> DelayLevels:
    return DelayLevels.parse(variant.config.delay_levels)


def assert_same(variant: Variant, files: SimulatedFiles) -> None:
    for tool in (verified, rebuilt, salvaged):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scan, "SINGLE_RECORDS_MAX", NEVER)
            one_by_one = tool(variant, files.process_crash_image())
            patch.setattr(scan, "SINGLE_RECORDS_MAX", 0)
            assert tool(variant, files.process_crash_image()) == one_by_one


@settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(
    name=st.sampled_from(sorted(VARIANTS)),
    cleanly=st.booleans(),
    harm=st.lists(damages, max_size=3),
)
@example(  # An entry of the index leads to damage that lies ahead of the key that it came behind.
    name="pool", cleanly=False, harm=[Damage("zero", 3, 0.5278710185626787, 13, 0)]
)
def test_tools_say_the_same_whatever_is_damaged(
    name: str, cleanly: bool, harm: list[Damage]
) -> None:
    found = stopped(name, cleanly=cleanly)
    files = found.harmed(harm)
    assert_same(found.variant, files)


class Change(NamedTuple):
    """Other numbers for the record at a share of the log; no checksum covers them."""

    share: float
    queue_offset: int
    half_share: float | None
    """Where in the log the half message is that the record names."""


changes_of_records: Final = st.builds(
    Change,
    st.floats(0, 1),
    st.integers(-2, 12) | st.sampled_from((1 << 40, -(1 << 63))),
    st.none() | st.floats(0, 1),
)


def renumber(variant: Variant, files: SimulatedFiles, changes: list[Change]) -> None:
    layout = layout_of(variant, files)
    with Regions(files) as regions:
        log = LogFiles(layout, regions)
        records = [record for batch in LogScan(log, check_crc=True).batches() for record in batch]
        for share, queue_offset, half_share in changes:
            record = records[int(share * (len(records) - 1))]
            file = log.find(record.physical_offset)
            assert file is not None
            with contextlib.closing(files.open(file.path)) as region:
                at = record.physical_offset - file.first_offset
                region.write(at + QUEUE_OFFSET_AT, queue_offset.to_bytes(8, "big", signed=True))
                if half_share is not None:
                    half = records[int(half_share * (len(records) - 1))].physical_offset
                    at += 60 + sum(host_sizes(record.sys_flag))
                    region.write(at, half.to_bytes(8, "big"))


@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(
    name=st.sampled_from(sorted(VARIANTS)),
    changes=st.lists(changes_of_records, min_size=1, max_size=8),
)
def test_tools_say_the_same_of_records_in_wrong_places(name: str, changes: list[Change]) -> None:
    found = stopped(name, cleanly=True)
    files = found.files.process_crash_image()
    renumber(found.variant, files, changes)
    assert_same(found.variant, files)


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_machine_code_is_really_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    feed_many = Derivation.feed_many

    def counted(self: Derivation, records: SoundRecords) -> SortedKeys | None:
        keys = feed_many(self, records)
        counts.append(0 if keys is None else len(records))
        return keys

    monkeypatch.setattr(Derivation, "feed_many", counted)
    monkeypatch.setattr(scan, "SINGLE_RECORDS_MAX", 0)
    found = stopped(name, cleanly=True)
    verified(found.variant, found.files.process_crash_image())
    assert sum(counts) > 0


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_a_salvage_moves_tables_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[bool] = []
    append_sound = NewLog.append_sound

    def counted(self: NewLog, sound: SoundRecords) -> bool:
        moved.append(append_sound(self, sound))
        return moved[-1]

    monkeypatch.setattr(NewLog, "append_sound", counted)
    monkeypatch.setattr(scan, "SINGLE_RECORDS_MAX", 0)
    found = stopped(name, cleanly=True)
    salvaged(found.variant, found.files.process_crash_image())
    assert any(moved)
