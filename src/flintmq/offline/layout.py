"""Where the files of a store directory are, and how large each kind of them is.

The sizes are settings of the broker and stand nowhere in the store, so they are read off the
files: all of one kind have the same.  What does not belong here becomes a finding.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from flintmq.format.stored.consume_queue import UNIT_SIZE
from flintmq.model.topics import LMQ_PREFIX
from flintmq.offline.errors import NotAStoreError
from flintmq.offline.findings import Findings, Kind
from flintmq.store.errors import StoreError, StoreIOError
from flintmq.store.files.interface import FileEntry, Files, safe_child
from flintmq.store.files.local_files import LocalFiles

DEFAULT_LOG_FILE_SIZE: Final = 1 << 30
DEFAULT_QUEUE_FILE_SIZE: Final = 6_000_000

_OFFSET_NAME: Final = re.compile(r"[0-9]{20}")
_QUEUE_ID: Final = re.compile(r"-?[0-9]{1,10}")
_INDEX_NAME: Final = re.compile(r"[0-9]{1,19}")
_OFFSET_MAX: Final = (1 << 63) - 1
_LMQ_STATE: Final = "lmqConsumerOffset.json"

QueueKey: TypeAlias = tuple[str, int]
"""Topic and queue id."""


class DataFile(NamedTuple):
    """One file of a log or queue; its name is the first offset that it holds."""

    first_offset: int
    path: Path
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeOptions:
    """Sizes that the caller knows; None is to be detected."""

    log_file_size: int | None = None
    queue_file_size: int | None = None
    hash_slots: int | None = None
    index_entries: int | None = None


@dataclass(slots=True, kw_only=True)
class StoreLayout:
    """The files of a store as they were when it was looked at."""

    root: Path
    files: Files
    sizes: SizeOptions
    log_directories: tuple[Path, ...]
    log_files: list[DataFile] = field(default_factory=list)
    log_file_size: int = DEFAULT_LOG_FILE_SIZE
    queues: dict[QueueKey, list[DataFile]] = field(default_factory=dict)
    queue_file_size: int = DEFAULT_QUEUE_FILE_SIZE
    extensions: dict[QueueKey, list[DataFile]] = field(default_factory=dict)
    index_files: list[DataFile] = field(default_factory=list)
    state_files: list[Path] = field(default_factory=list)
    has_queue_directory: bool = False
    has_abort: bool = False
    has_checkpoint: bool = False
    lmq: bool = True
    """Whether light queues have only the queue id zero, as a broker with enableLmq keeps them."""
    findings: Findings = field(default_factory=Findings)

    @property
    def queue_directory(self) -> Path:
        """Where the consume queues are."""
        return self.root / "consumequeue"

    @property
    def extension_directory(self) -> Path:
        """Where the extensions of consume queues are."""
        return self.root / "consumequeue_ext"

    @property
    def index_directory(self) -> Path:
        """Where the key index is."""
        return self.root / "index"

    @property
    def checkpoint(self) -> Path:
        """The checkpoint file, whether it exists or not."""
        return self.root / "checkpoint"

    def name_of(self, path: Path) -> str:
        """Return how reports name a file: relative to the store where it lies in it."""
        return str(path.relative_to(self.root) if path.is_relative_to(self.root) else path)

    def list_queue(self, key: QueueKey) -> list[DataFile]:
        """Look again which files a queue has; findings about them were reported at first."""
        try:
            directory = safe_child(self.queue_directory, key[0]) / str(key[1])
        except StoreError:
            return []  # No directory can have the name of such a topic.
        return _numbered(self, directory, Findings())

    def list_index(self) -> list[DataFile]:
        """Look which index files there are, oldest first."""
        return sorted(
            DataFile(int(entry.name), self.index_directory / entry.name, entry.size)
            for entry in self.files.list(self.index_directory)
            if _is_index_file(entry)
        )


def find_store(
    root: Path,
    *,
    log_directories: Sequence[Path] = (),
    sizes: SizeOptions | None = None,
    files: Files | None = None,
) -> StoreLayout:
    """Look through a store directory; NotAStoreError when there is none.

    ``log_directories`` are given where the log does not lie in ``commitlog``.
    """
    layout = StoreLayout(
        root=root,
        files=files or LocalFiles(),
        sizes=sizes or SizeOptions(),
        log_directories=tuple(log_directories) or (root / "commitlog",),
    )
    _find_top(layout)
    _find_log(layout)
    layout.queues = _find_queues(layout, layout.queue_directory)
    layout.extensions = _find_queues(layout, layout.extension_directory)
    _find_queue_size(layout)
    _find_index(layout)
    _find_lost_log(layout)
    layout.lmq = _keeps_light_queues(layout)
    return layout


def find_log(root: Path) -> StoreLayout:
    """Look for the log and the state files of a store; NotAStoreError when there is none.

    The layout tells nothing of queues and index: with many topics it takes long to list them.
    """
    layout = StoreLayout(
        root=root,
        files=LocalFiles(),
        sizes=SizeOptions(),
        log_directories=(root / "commitlog",),
    )
    _find_top(layout)
    _find_log(layout)
    return layout


def _find_top(layout: StoreLayout) -> None:
    root = layout.root
    try:
        entries = {entry.name: entry for entry in layout.files.list(root)}
        logs = [path for path in layout.log_directories if layout.files.exists(path)]
    except StoreIOError as error:
        raise NotAStoreError(root, error.cause.strerror or str(error.cause)) from error
    if not layout.files.exists(root):
        raise NotAStoreError(root, "there is no such directory")
    missing = [path for path in layout.log_directories if path not in logs]
    explicit = layout.log_directories != (root / "commitlog",)
    if missing and (explicit or "checkpoint" not in entries):
        raise NotAStoreError(root, f"there is no directory {missing[0]}")
    layout.has_abort = "abort" in entries
    layout.has_checkpoint = "checkpoint" in entries
    layout.has_queue_directory = "consumequeue" in entries
    for entry in layout.files.list(root / "config") if "config" in entries else ():
        if entry.name.endswith((".json", ".json.bak")) and not entry.is_directory:
            layout.state_files.append(root / "config" / entry.name)


def _numbered(layout: StoreLayout, directory: Path, findings: Findings) -> list[DataFile]:
    """Return the files of a directory that are named by an offset, in order."""
    found = []
    for entry in layout.files.list(directory):
        path = directory / entry.name
        if entry.is_directory or not _OFFSET_NAME.fullmatch(entry.name):
            findings.problem(
                Kind.STRAY_ENTRY, layout.name_of(path), None, "no broker has put this here"
            )
        elif int(entry.name) > _OFFSET_MAX:
            findings.problem(Kind.STRAY_ENTRY, layout.name_of(path), None, "no such offset")
        else:
            found.append(DataFile(int(entry.name), path, entry.size))
    return found


def _common_size(found: Sequence[DataFile]) -> int | None:
    """Return the size of most files; between equals, the one more names are multiples of."""
    sizes = Counter(file.size for file in found if file.size)
    if not sizes:
        return None

    def weight(size: int) -> tuple[int, int, int]:
        return sizes[size], sum(file.first_offset % size == 0 for file in found), size

    return max(sizes, key=weight)


def _find_log(layout: StoreLayout) -> None:
    by_offset: dict[int, DataFile] = {}
    for directory in layout.log_directories:
        for file in _numbered(layout, directory, layout.findings):
            if file.first_offset in by_offset:
                reason = f"the same offset as {by_offset[file.first_offset].path}"
                layout.findings.problem(
                    Kind.STRAY_ENTRY, layout.name_of(file.path), file.first_offset, reason
                )
            else:
                by_offset[file.first_offset] = file
    found = [by_offset[offset] for offset in sorted(by_offset)]
    size = layout.sizes.log_file_size or _common_size(found) or DEFAULT_LOG_FILE_SIZE
    layout.log_file_size = size
    for file in found:
        if file.first_offset % size:
            reason = f"its name is no multiple of {size}"
            name = layout.name_of(file.path)
            layout.findings.problem(Kind.STRAY_ENTRY, name, file.first_offset, reason)
            continue
        if file.size != size:
            reason = f"{file.size} bytes instead of {size}"
            name = layout.name_of(file.path)
            layout.findings.problem(Kind.WRONG_SIZE, name, file.first_offset, reason)
        if file.size:
            layout.log_files.append(file)


def _find_lost_log(layout: StoreLayout) -> None:
    """Report a log of which nothing is there although queues or index lead to it."""
    if layout.log_files or not (any(layout.queues.values()) or layout.index_files):
        return
    count = sum(bool(found) for found in layout.queues.values())
    reason = f"there is no log, but {count} queues and {len(layout.index_files)} index files"
    name = layout.name_of(layout.log_directories[0])
    layout.findings.problem(Kind.LOG_MISSING, name, None, reason)


def _find_queues(layout: StoreLayout, directory: Path) -> dict[QueueKey, list[DataFile]]:
    queues: dict[QueueKey, list[DataFile]] = {}
    for topic in layout.files.list(directory):
        if not topic.is_directory:
            _note_stray(layout, directory / topic.name, "not a directory of a topic")
            continue
        for entry in layout.files.list(directory / topic.name):
            path = directory / topic.name / entry.name
            if not entry.is_directory or not _QUEUE_ID.fullmatch(entry.name):
                _note_stray(layout, path, "not a directory of a queue")
                continue
            queues[topic.name, int(entry.name)] = _numbered(layout, path, layout.findings)
    return queues


def _note_stray(layout: StoreLayout, path: Path, reason: str) -> None:
    layout.findings.note(Kind.STRAY_ENTRY, layout.name_of(path), None, f"{reason}; brokers skip it")


def _find_queue_size(layout: StoreLayout) -> None:
    every = [file for found in layout.queues.values() for file in found]
    whole = [file for file in every if file.size % UNIT_SIZE == 0]
    size = layout.sizes.queue_file_size or _common_size(whole) or DEFAULT_QUEUE_FILE_SIZE
    layout.queue_file_size = size + -size % UNIT_SIZE
    for file in every:
        if file.size != layout.queue_file_size:
            reason = f"{file.size} bytes instead of {layout.queue_file_size}"
            layout.findings.problem(Kind.WRONG_SIZE, layout.name_of(file.path), None, reason)


def _find_index(layout: StoreLayout) -> None:
    layout.index_files = layout.list_index()
    for entry in layout.files.list(layout.index_directory):
        if not _is_index_file(entry):
            path = layout.index_directory / entry.name
            _note_stray(layout, path, "not the name of an index file")


def _is_index_file(entry: FileEntry) -> bool:
    return not entry.is_directory and _INDEX_NAME.fullmatch(entry.name) is not None


def _keeps_light_queues(layout: StoreLayout) -> bool:
    """Guess enableLmq: without it a light queue can have any queue id."""
    if any(path.name == _LMQ_STATE for path in layout.state_files):
        return True
    return not any(
        topic.startswith(LMQ_PREFIX) and queue_id != 0 for topic, queue_id in layout.queues
    )
