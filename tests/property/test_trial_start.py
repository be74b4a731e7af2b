"""What `verify --start` tells is what a start then does, byte for byte, whatever is damaged."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final

import pytest

from flintmq.errors import FlintError
from flintmq.offline.trial.private_files import PrivateFiles
from flintmq.offline.trial.trial_start import StartReport, try_start_of
from flintmq.store.config import DamagedLogPolicy, StoreConfig
from flintmq.store.files.interface import Files
from flintmq.store.message_store import MessageStore
from flintmq.store.recovery.recovery_report import RecoveryReport
from flintmq.testing import ROOT, ManualClock, SimulatedFiles
from tests.kits.store.store_workload import START_MS, VARIANTS, Driver, bitmap_of

DAMAGE_COUNT: Final = 400
"""For each kind of store; each damage is tried after a kill, a power failure and a clean stop."""

KINDS: Final = ("async", "sync", "ext", "multi", "deleting")


def paths_of(files: Files, directory: Path = ROOT) -> list[Path]:
    found: list[Path] = []
    for entry in files.list(directory):
        path = directory / entry.name
        found += paths_of(files, path) if entry.is_directory else [path]
    return found


def content_of(files: Files) -> dict[Path, bytes]:
    return {path: files.read(path) for path in paths_of(files)}


def in_log(content: dict[Path, bytes]) -> dict[Path, bytes]:
    names = ("commitlog", "disk0", "disk1")
    return {path: data for path, data in content.items() if path.parent.name in names}


def harm(files: SimulatedFiles, rng: Random) -> None:
    """Damage one to three files of a store."""
    paths = [path for path in paths_of(files) if path.name != "lock"]
    log_paths = list(in_log(dict.fromkeys(paths, b"")))
    if rng.random() < 0.3:
        files.remove(ROOT / "checkpoint")  # Then the whole log is looked at.
        paths.remove(ROOT / "checkpoint")
    for _ in range(rng.randint(1, 3)):
        path = rng.choice(log_paths if log_paths and rng.random() < 0.6 else paths)
        if not files.exists(path):
            continue
        data = bytearray(files.read(path))
        start = rng.randrange(len(data)) if data else 0
        end = min(start + rng.choice((1, 8, 60, 400, 2000)), len(data))
        kind = rng.choice(("flip", "zero", "garbage", "garbage", "garbage", "remove", "cut"))
        if kind == "remove":
            files.remove(path)
            continue
        if kind == "cut" and path not in log_paths:
            del data[start:]
        elif kind == "zero":
            data[start:end] = bytes(end - start)
        elif kind == "flip":
            for at in range(start, min(start + 1, end)):
                data[at] ^= 1 << rng.randrange(8)
        else:
            data[start:end] = rng.randbytes(end - start)
        files.write(path, bytes(data))


def real_start(
    config: StoreConfig, files: Files, **options: object
) -> tuple[RecoveryReport | None, str]:
    try:
        store = MessageStore.open(
            config,
            files=files,
            clock=ManualClock(START_MS * 2),
            background=False,
            **options,  # type: ignore[arg-type]
        )
    except FlintError as error:
        return None, str(error)
    store.close()
    return store.recovery_report, ""


def agree(trial: StartReport, real: tuple[RecoveryReport | None, str]) -> None:
    recovery, refused = real
    assert trial.refused == refused
    if recovery is None or trial.recovery is None:
        assert recovery is trial.recovery
        return
    assert replace(trial.recovery, duration_ms=0) == replace(recovery, duration_ms=0)


@pytest.mark.parametrize("name", KINDS)
def test_a_trial_start_does_what_a_start_does(name: str) -> None:
    variant = VARIANTS[name]
    files = variant.new_files()
    driver = Driver(variant, files, seed=51)
    driver.run(60, stop_after=59)
    killed = files.process_crash_image()
    driver.close()
    stopped = files.process_crash_image()
    seen = {"kept": 0, "set aside": 0, "refused": 0, "cut": 0, "rebuilt": 0}
    for number in range(DAMAGE_COUNT):
        rng = Random(f"{name} {number}")
        image = (stopped if number % 3 == 0 else killed).process_crash_image()
        image.boot_number += number % 3 == 1
        harm(image, rng)
        config = variant.config
        if number % 5 == 4:
            config = replace(config, damaged_log_policy=DamagedLogPolicy.REFUSE)
        options = {"filter_bitmap": bitmap_of if config.enable_consume_queue_ext else None}
        before = content_of(image)
        calls = len(image.change_numbers())
        clock = ManualClock(START_MS * 2)
        private = PrivateFiles(image)
        trial = try_start_of(config, files=private, clock=clock, **options)
        assert content_of(image) == before
        assert len(image.change_numbers()) == calls, "a trial start writes nothing"
        real = real_start(config, image, **options)
        agree(trial, real)
        if real[0] is None:
            seen["refused"] += 1
            assert in_log(content_of(image)) == in_log(before), "a refusal leaves the log alone"
            continue
        assert content_of(private) == content_of(image)
        seen["kept"] += bool(real[0].damaged_range_count)
        seen["set aside"] += bool(real[0].records_set_aside)
        seen["cut"] += bool(real[0].bytes_truncated)
        seen["rebuilt"] += bool(real[0].units_rebuilt)
    assert all(count >= 3 for count in seen.values()), seen


def test_the_runs_come_to_two_thousand_damages() -> None:
    assert DAMAGE_COUNT * len(KINDS) >= 2000
