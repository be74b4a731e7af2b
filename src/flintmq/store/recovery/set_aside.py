"""Setting aside what recovery cuts off the log although whole records stand in it.

The bytes go into ``recovered/`` of the store, which no broker looks at: for each file of the log
one ``<physical offset>.cut`` with the bytes from there to the end of that file, and beside it a
``.json`` that says why.  ``flintmq store dump`` and ``flintmq store salvage`` read them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from flintmq.store.errors import StoreLoadError
from flintmq.store.files.interface import make_directory_durable
from flintmq.store.files.mapped_file_queue import file_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from flintmq.store.files.interface import Files, MappedRegion
    from flintmq.store.log.commit_log import CommitLog

DIRECTORY: Final = "recovered"
CUT_SUFFIX: Final = ".cut"
SAME_OFFSET_MAX: Final = 1000
"""So many times a log may be cut at one offset before the start is refused."""

_CHUNK_SIZE: Final = 1 << 20
_STAGED_SUFFIX: Final = ".new"


class SetAside(NamedTuple):
    """One file of bytes that were cut off the log."""

    path: Path
    physical_offset: int
    size: int


def set_aside(
    log: CommitLog, root: Path, offset: int, facts: Mapping[str, Any], *, files: Files
) -> list[SetAside]:
    """Copy what is written from ``offset`` to the end of the log; ``facts`` say why.

    Everything is durable when this returns.  A crash on the way leaves the log as it was, and
    the next start does the same again.

    Raises:
        DiskFullError: there is no room for the copy; nothing was cut off.
    """
    directory = root / DIRECTORY
    made = []
    for file in log.files_from(offset):
        start = max(offset - file.first_offset, 0)
        ranges = list(file.region.data_ranges(start))
        if not _is_written(file.view, ranges):
            continue
        make_directory_durable(files, directory)
        at = file.first_offset + start
        made.append(
            SetAside(_free_path(directory, at, file.view[start:], files), at, file.size - start)
        )
        path = made[-1].path
        if files.exists(path):
            continue
        staged = path.with_name(path.name + _STAGED_SUFFIX)
        files.remove(staged, missing_ok=True)
        region = files.create(staged, file.size - start, reserve=False)
        try:
            _copy(file.view, ranges, region, start)
            region.sync()
        finally:
            region.close()
        content = {"physicalOffset": at, "size": file.size - start, **facts}
        described = path.with_suffix(".json")
        files.write(described, json.dumps(content, indent=1).encode())
        files.sync(described)
        files.rename(staged, path)
    if made:
        files.sync_directory(directory)
    return made


def _is_written(view: memoryview, ranges: list[tuple[int, int]]) -> bool:
    return any(
        any(view[at : min(at + _CHUNK_SIZE, end)].tobytes().strip(b"\0"))
        for begin, end in ranges
        for at in range(begin, end, _CHUNK_SIZE)
    )


def _copy(
    source: memoryview, ranges: list[tuple[int, int]], target: MappedRegion, start: int
) -> None:
    for begin, end in ranges:
        for at in range(begin, end, _CHUNK_SIZE):
            chunk = bytes(source[at : min(at + _CHUNK_SIZE, end)])
            if chunk.strip(b"\0"):
                target.write(at - start, chunk)


def _free_path(directory: Path, offset: int, content: memoryview, files: Files) -> Path:
    """Return a path that is free, or has these bytes since a crash came while they were cut."""
    for number in range(SAME_OFFSET_MAX):
        name = file_name(offset) + (f"-{number}" if number else "")
        path = directory / (name + CUT_SUFFIX)
        if not files.exists(path) or _covers(files, path, content):
            return path
    raise StoreLoadError(directory, f"the log was cut at {offset} too often; clear this directory")


def _covers(files: Files, path: Path, content: memoryview) -> bool:
    """Whether a file holds these bytes; some of them may have been zeroed since."""
    if files.size(path) != len(content):
        return False
    region = files.open(path, read_only=True)
    try:
        for at in range(0, len(content), _CHUNK_SIZE):
            held, wanted = region.view[at : at + _CHUNK_SIZE], content[at : at + _CHUNK_SIZE]
            if held != wanted and not all(
                byte in (0, kept) for byte, kept in zip(wanted, held, strict=True)
            ):
                return False
    finally:
        held = wanted = memoryview(b"")
        region.close()
    return True
