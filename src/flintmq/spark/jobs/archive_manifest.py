"""What an archive holds, run by run, and how a run becomes visible all at once.

    messages/run=000001/topic=…/day=…/*.parquet   the rows of a run
    _flintmq/run-000001.json                      its manifest: counts, checksums, ranges
    _flintmq/state/000001/0/*.json                state files of each store or broker
    _flintmq/current.json                         the runs that count
    _flintmq/lock                                 held while something is added
    _pending/rows, _pending/tasks                 a run that is being written

A run counts once ``current.json`` names it, which is replaced in one step as the last of all.
What no manifest in force names is ignored by readers and removed by the next run.
"""

import dataclasses
import hashlib
import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from flintmq.spark.errors import ArchiveError
from flintmq.spark.jobs.switch import sync_directory

VERSION: Final = 1
MANIFEST_SIZE_MAX: Final = 1 << 30
_CHECKSUM_MODULUS: Final = 1 << 64
_CHUNK_SIZE: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRecord:
    """The last record that was archived: by it a store is known again."""

    physical_offset: int
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEnd:
    """The last record of a live queue that was archived: by it the queue is known again."""

    queue_offset: int
    physical_offset: int
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRun:
    """What one run has taken from one live queue: the offsets from ``start`` to before ``end``.

    There are fewer records than offsets only where some were gone or damaged.  ``last`` is that
    of an earlier run where this one found none.
    """

    topic: str
    queue_id: int
    start: int
    end: int
    record_count: int
    last: QueueEnd | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRun:
    """What one run has taken from one store, or from the live queues of one broker.

    ``start`` and ``end`` are the part of the log that was read; of a broker, where its first
    record starts and its last one ends, and zero both if there was none.  ``checksum`` is the
    sum, modulo 2^64, of the FNV-1a hashes of the records' bytes, so their order does not matter.
    """

    name: str
    path: str
    broker_name: str | None
    start: int
    end: int
    record_count: int
    record_bytes: int
    checksum: int
    last: LastRecord | None
    log_file_size: int
    queue_file_size: int
    hash_slots: int | None
    index_entries: int | None
    state_files: dict[str, str] = field(default_factory=dict)
    """SHA-256 by name."""
    cluster: str | None = None
    queues: tuple[QueueRun, ...] | None = None
    """Of a broker, every queue that was looked at; None for a store."""

    @property
    def is_live(self) -> bool:
        """Whether a broker gave the records, rather than files."""
        return self.queues is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    """One Parquet file, by its path in the archive: rows of one store, topic and day.

    ``record_bytes`` and ``checksum`` are those of the records that the rows give, ``last`` is
    the physical offset of the last one.
    """

    path: str
    store: str
    topic: str
    day: str
    size: int
    rows: int
    record_bytes: int
    checksum: int
    last: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One run."""

    run: int
    created_ms: int
    topics: tuple[str, ...] | None
    on_corrupt: str
    stores: tuple[StoreRun, ...]
    files: tuple[ArchivedFile, ...]
    version: int = VERSION


def add_checksums(*values: int) -> int:
    """Return the sum of checksums."""
    return sum(values) % _CHECKSUM_MODULUS


def run_name(run: int) -> str:
    """Return how files name a run."""
    return f"{run:06}"


class ArchiveDirectory:
    """The files of one archive."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.own = root / "_flintmq"
        self.pending = root / "_pending"
        self.messages = root / "messages"
        self._current = self.own / "current.json"

    def exists(self) -> bool:
        """Whether there is an archive, maybe without a run."""
        return self.own.is_dir()

    def run_directory(self, run: int) -> Path:
        """Return where the rows of a run are."""
        return self.messages / f"run={run_name(run)}"

    def state_directory(self, run: int, store_number: int) -> Path:
        """Return where the state files of a store are, as a run has found them."""
        return self.own / "state" / run_name(run) / str(store_number)

    def manifests(self) -> list[Manifest]:
        """Return the runs that count, oldest first."""
        if not self._current.exists():
            return []
        runs = _read_json(self._current).get("runs")
        if not isinstance(runs, list) or not all(isinstance(run, int) for run in runs):
            raise ArchiveError(str(self._current), "does not tell the runs")
        return [self._manifest(run) for run in runs]

    def _manifest_path(self, run: int) -> Path:
        return self.own / f"run-{run_name(run)}.json"

    def _manifest(self, run: int) -> Manifest:
        path = self._manifest_path(run)
        values = _read_json(path)
        if values.get("version") != VERSION:
            reason = f"has the version {values.get('version')!r}; known is {VERSION}"
            raise ArchiveError(str(path), reason)
        try:
            manifest = _manifest_of(values)
            names = [Path(name) for store in manifest.stores for name in store.state_files]
            files = [Path(file.path) for file in manifest.files]
        except (KeyError, TypeError, AttributeError) as error:
            raise ArchiveError(str(path), f"is no manifest: {error!r}") from error
        for outside in [
            *[name for name in names if len(name.parts) != 1],
            *[file for file in (*names, *files) if file.is_absolute() or ".." in file.parts],
        ]:
            raise ArchiveError(str(path), f"names a file outside the archive: {outside}")
        return manifest

    def prepare(self) -> None:
        """Make the directories, and remove what runs have left that were interrupted."""
        self.own.mkdir(parents=True, exist_ok=True)
        self.messages.mkdir(exist_ok=True)
        known = {run_name(manifest.run) for manifest in self.manifests()}
        shutil.rmtree(self.pending, ignore_errors=True)
        for path in self.messages.glob("run=*"):
            if path.name.removeprefix("run=") not in known:
                shutil.rmtree(path)
        state = self.own / "state"
        for path in state.iterdir() if state.exists() else ():
            if path.name not in known:
                shutil.rmtree(path)
        for path in self.own.glob("run-*.json"):
            if path.stem.removeprefix("run-") not in known:
                path.unlink()

    def collect(self, task_directory: Path, file: ArchivedFile, run: int) -> ArchivedFile:
        """Take over a file of a task that has succeeded; return it with its final path."""
        target = self.pending / "rows" / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        (task_directory / file.path).rename(target)
        final = self.run_directory(run).relative_to(self.root) / file.path
        return dataclasses.replace(file, path=str(final))

    def publish(self, manifest: Manifest) -> None:
        """Make a run count: its rows go to their place, and the last step names it."""
        runs = [known.run for known in self.manifests()]
        rows = self.pending / "rows"
        rows.mkdir(parents=True, exist_ok=True)
        _sync_tree(rows)
        _sync_tree(self.own)
        rows.rename(self.run_directory(manifest.run))
        # Tasks of a driver that was killed may still write there; the next run removes that.
        shutil.rmtree(self.pending, ignore_errors=True)
        sync_directory(self.messages)
        sync_directory(self.root)
        write_json(self._manifest_path(manifest.run), dataclasses.asdict(manifest))
        write_json(self._current, {"version": VERSION, "runs": [*runs, manifest.run]})


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file so that the old one or the new one is there at every instant."""
    staged = path.with_name(path.name + ".new")
    with staged.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
    staged.rename(path)
    sync_directory(path.parent)


def file_sha256(path: Path) -> str:
    """Return the digest of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_SIZE):
            digest.update(chunk)
    return digest.hexdigest()


def _sync_tree(root: Path) -> None:
    for path in [*root.rglob("*"), root]:
        if path.is_dir():
            sync_directory(path)
            continue
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _read_json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MANIFEST_SIZE_MAX:
            raise ArchiveError(str(path), f"has more than {MANIFEST_SIZE_MAX} bytes")
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ArchiveError(str(path), f"cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise ArchiveError(str(path), "is no JSON object")
    return value


def _manifest_of(values: dict[str, Any]) -> Manifest:
    topics = values["topics"]
    return Manifest(
        run=values["run"],
        created_ms=values["created_ms"],
        topics=None if topics is None else tuple(topics),
        on_corrupt=values["on_corrupt"],
        stores=tuple(map(_store_run_of, values["stores"])),
        files=tuple(ArchivedFile(**one) for one in values["files"]),
    )


def _store_run_of(values: dict[str, Any]) -> StoreRun:
    last = values["last"]
    # Archives of stores that were made before there were live ones do not speak of queues.
    queues = values.get("queues")
    return StoreRun(
        **{
            **values,
            "last": None if last is None else LastRecord(**last),
            "queues": None if queues is None else tuple(map(_queue_run_of, queues)),
        }
    )


def _queue_run_of(values: dict[str, Any]) -> QueueRun:
    last = values["last"]
    return QueueRun(**{**values, "last": None if last is None else QueueEnd(**last)})
