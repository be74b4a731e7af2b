"""Where the golden sets are, and what the Java broker says about them (see data/README.md)."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

DATA: Final = Path(__file__).parents[2] / "golden" / "data"

STORE_SET_NAMES: Final = (
    "basic",
    "rolled",
    "kinds",
    "extended",
    "ipv6",
    "killed",
    "killed-recovered",
    "killed-early",
    "killed-early-recovered",
)
LOADED_SET_NAMES: Final = tuple(
    name for name in STORE_SET_NAMES if name not in ("killed", "killed-early")
)
"""Sets for which the Java store was asked too: queues, reads and index queries."""

DAMAGED_SET_NAMES: Final = tuple(
    sorted(path.name for path in (DATA / "damaged").iterdir() if path.is_dir())
)


@dataclass(frozen=True, slots=True)
class GoldenSet:
    """One store directory with its expectations."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def store(self) -> Path:
        return self.path / "store"

    def expected(self, file_name: str = "expected.json") -> dict[str, Any]:
        """Return what is expected of the whole store."""
        return _load_map(self.path / file_name)

    def messages(self) -> list[dict[str, Any]]:
        """Return what is expected of each message, in log order."""
        lines = (self.path / "expected.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def log_files(self) -> Iterator[tuple[int, bytes]]:
        """Yield physical offset and content of each commit-log file, in order."""
        for path in sorted((self.store / "commitlog").iterdir()):
            yield int(path.name), path.read_bytes()

    def queue_bytes(self, topic: str, queue_id: int, *, ext: bool = False) -> bytes:
        """Return the files of one consume queue, or of its extension, joined."""
        folder = "consumequeue_ext" if ext else "consumequeue"
        files = sorted((self.store / folder / topic / str(queue_id)).iterdir())
        return b"".join(path.read_bytes() for path in files)

    def index_files(self) -> list[Path]:
        """Return the index files, oldest first."""
        folder = self.store / "index"
        return sorted(folder.iterdir()) if folder.exists() else []

    def state_files(self) -> list[Path]:
        """Return the JSON state files and their backups."""
        return sorted((self.store / "config").iterdir())


def golden_set(name: str) -> GoldenSet:
    """Return a store set by its name."""
    return GoldenSet(DATA / name)


def damaged_set(name: str) -> GoldenSet:
    """Return a damaged copy of ``rolled`` by the name of its damage; it has no expected.jsonl."""
    return GoldenSet(DATA / "damaged" / name)


def _load_map(path: Path) -> dict[str, Any]:
    loaded = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded
