"""Stores that were stopped or killed, and damage to their files."""

import contextlib
import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from hypothesis import strategies as st

from flintmq.testing import ROOT, SimulatedFiles
from tests.kits.store.store_ledger import Ledger
from tests.kits.store.store_workload import VARIANTS, Driver, Variant

STEP_COUNT: Final = 60


class Stopped(NamedTuple):
    """A store that was stopped cleanly, or killed."""

    variant: Variant
    files: SimulatedFiles
    ledger: Ledger
    paths: tuple[Path, ...]

    def harmed(self, harm: "Iterable[Damage]") -> SimulatedFiles:
        """Return what a crash leaves of the files, with all that damage done to them."""
        files = self.files.process_crash_image()
        for damage in harm:
            with contextlib.suppress(FileNotFoundError):  # It was removed before.
                damage.apply(self, files)
        return files


@functools.cache
def stopped(name: str, *, cleanly: bool) -> Stopped:
    variant = VARIANTS[name]
    files = variant.new_files()
    driver = Driver(variant, files, seed=41)
    driver.run(STEP_COUNT, stop_after=STEP_COUNT - 1)
    if cleanly:
        driver.close()
    return Stopped(variant, files, driver.ledger, tuple(sorted(paths_of(files, ROOT))))


def paths_of(files: SimulatedFiles, directory: Path) -> list[Path]:
    found = []
    for entry in files.list(directory):
        path = directory / entry.name
        found += paths_of(files, path) if entry.is_directory else [path]
    return [path for path in found if path.name != "lock"]


class Damage(NamedTuple):
    """What happens to one file; places are shares of its size."""

    kind: str
    path_number: int
    at: float
    size: int
    byte: int

    def apply(self, found: Stopped, files: SimulatedFiles) -> tuple[Path, range]:
        """Damage a file; return which, and which of its bytes are not what they were."""
        path = found.paths[self.path_number % len(found.paths)]
        data = bytearray(files.read(path))
        start = min(int(self.at * len(data)), max(len(data) - 1, 0))
        end = min(start + self.size, len(data))
        if self.kind == "remove":
            files.remove(path)
            return path, range(len(data))
        if self.kind == "cut":
            del data[start:]
        elif self.kind == "grow":
            data += bytes([self.byte]) * self.size
        elif self.kind == "flip" and data:
            data[start] ^= self.byte or 0xFF
            end = start + 1
        elif self.kind == "zero":
            data[start:end] = bytes(end - start)
        else:
            data[start:end] = bytes([self.byte]) * (end - start)
        files.write(path, bytes(data))
        return path, range(start, end)


damages = st.builds(
    Damage,
    kind=st.sampled_from(["remove", "cut", "grow", "flip", "flip", "flip", "zero", "fill"]),
    path_number=st.integers(0, 999),
    at=st.floats(0, 1, exclude_max=True),
    size=st.integers(1, 700),
    byte=st.integers(0, 255),
)
