"""What an archive holds, run by run, and how a run becomes visible all at once.

    messages/run=000001/topic=…/day=…/*.parquet   the rows of a run
    _flintmq/run-000001.json                      its manifest: counts, checksums, ranges
    _flintmq/state/000001/0/*.json                state files of each store or broker
    _flintmq/current.json                         the runs that count
    _flintmq/lock                                 held while something is added
    _pending/rows, _pending/state, _pending/tasks a run that is being written

A run counts once ``current.json`` names it, which is replaced in one step as the last of all.  The
manifest of a run is written before its rows leave ``_pending``.  So what lies in ``_pending``
without a manifest is unfinished and is removed by the next run, a run with a manifest is finished
by it, and nothing outside of ``_pending`` is ever removed.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from flintmq.spark.errors import ArchiveError
from flintmq.spark.jobs.damages import Damages, added
from flintmq.spark.jobs.rebuild.switch import sync_directory

VERSION: Final = 1
SHARED_VERSION: Final = 2
"""Of manifests that name files of several topics."""
MANIFEST_SIZE_MAX: Final = 1 << 30
_CHECKSUM_MODULUS: Final = 1 << 64
_CHUNK_SIZE: Final = 1 << 20
_RECOVERY: Final = "(`flintmq pipeline check-archive --recover` makes it again from the manifests)"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRecord:
    """The last record of the range that was read, of whichever topic: a store is known by it."""

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

    def is_of(self, record: bytes) -> bool:
        """Whether these bytes are that record; its offsets are among them."""
        return len(record) == self.size and hashlib.sha256(record).hexdigest() == self.sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRun:
    """What one run has archived of one live queue: the offsets from ``start`` to before ``end``.

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
    """What one run has archived of one store, or from the live queues of one broker.

    ``start`` and ``end`` bound the range of the log that was read; of a broker, where its first
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
    damages: Damages = field(default_factory=Damages)
    """What of the range holds no whole record and was left out."""

    @property
    def is_live(self) -> bool:
        """Whether a broker gave the records, rather than files."""
        return self.queues is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    """One Parquet file, by its path in the archive: rows of one store, topic and day.

    ``topic`` is None where several topics and days, small ones, share the file; its rows tell.
    ``record_bytes`` and ``checksum`` are those of the records that the rows give, ``last`` is
    the physical offset of the last one.
    """

    path: str
    store: str
    topic: str | None
    day: str
    size: int
    rows: int
    record_bytes: int
    checksum: int
    last: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What one run has added to an archive."""

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
        """Return the runs that count, oldest first.

        Raises:
            ArchiveError: ``current.json`` or a manifest is lost, or the first run is not finished.
        """
        if not self._current.exists():
            self._refuse_lost()
        if not self._has_finished_run():
            raise ArchiveError(str(self.root), "its first run was not finished; run it again")
        runs = self._runs()
        # A run that is being published has a manifest too, and the highest number of all.
        for run in (run for run in self._written_runs() if runs and run < runs[-1]):
            if run not in runs:
                reason = f"does not name run {run}, which has a manifest {_RECOVERY}"
                raise ArchiveError(str(self._current), reason)
        return [self._manifest(run) for run in runs]

    def require_files(self, manifests: Sequence[Manifest]) -> None:
        """Raise ArchiveError unless the rows are in the files that manifests name, and no other.

        Their bytes are not read: a check of the archive does that.
        """
        for manifest in manifests:
            named = {file.path: file.size for file in manifest.files}
            there = {
                str(path.relative_to(self.root)): path.stat().st_size
                for path in self.run_directory(manifest.run).rglob("*.parquet")
            }
            for path in sorted(named.keys() | there.keys()):
                if named.get(path) != there.get(path):
                    told, found = (
                        "no such file" if size is None else f"{size} bytes"
                        for size in (named.get(path), there.get(path))
                    )
                    reason = f"the manifest has {told}, the archive {found}"
                    raise ArchiveError(str(self.root / path), reason)

    def _refuse_lost(self) -> None:
        """Raise ArchiveError if there are runs, of which the lost ``current.json`` would tell."""
        if any(self.own.glob("run-*.json")) or any(self.messages.glob("run=*")):
            raise ArchiveError(str(self._current), f"is lost, though there are runs {_RECOVERY}")

    def _has_finished_run(self) -> bool:
        return self._current.exists() and _read_json(self._current).get("is_finished", True) is True

    def _runs(self) -> list[int]:
        values = _read_json(self._current)
        runs = values.get("runs")
        if not isinstance(runs, list) or not all(type(run) is int for run in runs):
            raise ArchiveError(str(self._current), f"does not tell the runs {_RECOVERY}")
        if runs != sorted(set(runs)) or values.get("version", VERSION) != VERSION:
            raise ArchiveError(str(self._current), f"is not what a run writes {_RECOVERY}")
        return runs

    def _write_runs(self, runs: Sequence[int], *, is_finished: bool = True) -> None:
        value = {"version": VERSION, "runs": list(runs)}
        write_json(self._current, value if is_finished else {**value, "is_finished": False})

    def damages(self, store: str | None = None) -> Damages:
        """Return what the runs have left out, of all stores or of one."""
        return added(
            one.damages
            for manifest in self.manifests()
            for one in manifest.stores
            if store in (None, one.name)
        )

    def manifest_sha256(self, run: int) -> str:
        """Return the digest of a run's manifest, by which the run is known again."""
        return file_sha256(self._manifest_path(run))

    def _manifest_path(self, run: int) -> Path:
        return self.own / f"run-{run_name(run)}.json"

    def _manifest(self, run: int) -> Manifest:
        path = self._manifest_path(run)
        values = _read_json(path)
        if values.get("version") not in (VERSION, SHARED_VERSION):
            reason = f"has the version {values.get('version')!r}; known is {SHARED_VERSION}"
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
        if manifest.run != run:
            raise ArchiveError(str(path), f"is the manifest of run {manifest.run}")
        return manifest

    def prepare(self) -> list[Manifest]:
        """Make the directories, finish or remove what an interrupted run has left.

        Returns the runs that count.  The caller holds the lock.

        Raises:
            ArchiveError: ``current.json`` or something that a manifest names is lost.
        """
        self.own.mkdir(parents=True, exist_ok=True)
        self.messages.mkdir(exist_ok=True)
        if not self._current.exists():
            self._refuse_lost()
            self._write_runs([], is_finished=False)
        self._finish_published(self._runs())
        shutil.rmtree(self.pending, ignore_errors=True)
        return [self._manifest(run) for run in self._runs()]

    def recover(self) -> list[int]:
        """Make ``current.json`` again from the manifests; return the runs that it names now.

        The caller holds the lock.

        Raises:
            ArchiveError: a manifest cannot be read, rows are missing, or there is no manifest.
        """
        known: list[int] = []
        with contextlib.suppress(ArchiveError):
            known = self._runs()
        if not known and not any(self._written_runs()):
            raise ArchiveError(str(self.own), "holds no manifest to recover from")
        return self._finish_published(known)

    def _finish_published(self, known: Sequence[int]) -> list[int]:
        """Let all runs count that have a manifest; return them."""
        runs = sorted({*known, *self._written_runs()})
        for run in runs:
            if run in known:
                continue
            manifest = self._manifest(run)
            self._move_in(run)
            for file in manifest.files:
                path = self.root / file.path
                if not path.is_file() or path.stat().st_size != file.size:
                    reason = f"is not there as the manifest of run {run} says, which was not in use"
                    raise ArchiveError(str(path), reason)
        if runs != list(known):
            self._write_runs(runs)
        return runs

    def _written_runs(self) -> list[int]:
        """Return the runs that have a manifest, whether they count or not."""
        names = (path.stem.removeprefix("run-") for path in self.own.glob("run-*.json"))
        return sorted(int(name) for name in names if name.isdecimal())

    def next_run(self) -> int:
        """Return a number that nothing in the archive has, also nothing that does not count."""
        taken = [
            *(path.name.removeprefix("run=") for path in self.messages.glob("run=*")),
            *(path.name for path in (self.own / "state").glob("*")),
        ]
        return max([0, *self._written_runs(), *(int(one) for one in taken if one.isdecimal())]) + 1

    def strays(self) -> Iterator[str]:
        """Yield the directories of rows that belong to no run."""
        known = {run_name(run) for run in self._runs()}
        for path in sorted(self.messages.glob("run=*")):
            if path.name.removeprefix("run=") not in known:
                yield str(path.relative_to(self.root))

    def collect(self, task_directory: Path, file: ArchivedFile, run: int) -> ArchivedFile:
        """Take over a file of a task that has succeeded; return it with its final path."""
        target = self._pending_rows / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        (task_directory / file.path).rename(target)
        final = self.run_directory(run).relative_to(self.root) / file.path
        return dataclasses.replace(file, path=str(final))

    def keep_state(self, store_number: int, contents: Mapping[str, bytes]) -> None:
        """Keep state files of a store for the run that is being written."""
        target = self._pending_state / str(store_number)
        target.mkdir(parents=True)
        for name, content in contents.items():
            (target / name).write_bytes(content)

    def publish(self, manifest: Manifest) -> None:
        """Make a run count: its rows go to their place, and the last step names it."""
        runs = self._runs()
        for path in (self._pending_rows, self._pending_state):
            path.mkdir(parents=True, exist_ok=True)
            _sync_tree(path)
        sync_directory(self.pending)
        write_json(self._manifest_path(manifest.run), dataclasses.asdict(manifest))
        self._move_in(manifest.run)
        # Tasks of a driver that was killed may still write there; the next run removes that.
        shutil.rmtree(self.pending, ignore_errors=True)
        self._write_runs([*runs, manifest.run])

    def abandon(self, run: int) -> None:
        """Remove what a run has written that was not published and never will be."""
        if not self._manifest_path(run).exists():
            shutil.rmtree(self.pending, ignore_errors=True)

    def finish_without_run(self) -> None:
        """Note that a run has ended well that had nothing to add."""
        if not self._has_finished_run():
            self._write_runs(self._runs())

    @property
    def _pending_rows(self) -> Path:
        return self.pending / "rows"

    @property
    def _pending_state(self) -> Path:
        return self.pending / "state"

    def _move_in(self, run: int) -> None:
        """Bring what a run has written to its place, as far as it is not there yet."""
        state = self.own / "state"
        state.mkdir(exist_ok=True)
        for pending, final in (
            (self._pending_rows, self.run_directory(run)),
            (self._pending_state, state / run_name(run)),
        ):
            if pending.exists() and not final.exists():
                pending.rename(final)
        for path in (self.messages, state, self.own, self.root):
            sync_directory(path)


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
        version=values["version"],
    )


def _store_run_of(values: dict[str, Any]) -> StoreRun:
    last = values["last"]
    # Archives that were made by earlier versions speak of neither queues nor damages.
    queues = values.get("queues")
    return StoreRun(
        **{
            **values,
            "last": None if last is None else LastRecord(**last),
            "queues": None if queues is None else tuple(map(_queue_run_of, queues)),
            "damages": Damages.from_members(values.get("damages")),
        }
    )


def _queue_run_of(values: dict[str, Any]) -> QueueRun:
    last = values["last"]
    return QueueRun(**{**values, "last": None if last is None else QueueEnd(**last)})
