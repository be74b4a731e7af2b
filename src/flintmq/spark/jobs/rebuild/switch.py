"""Replaces the views of a store by finished ones, so that a crash leaves the old or the new ones.

Where the file system can exchange two directories in one step, that is done.  Elsewhere the old
directory is moved into the build directory and then the new one into its place; if the process
ends between the two, `finish_interrupted` of the next run completes the switch, since a directory
is only ever moved to ``old`` when its successor is complete.  A broker that starts before that
finds no queues and makes them anew from the log.
"""

import ctypes
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from flintmq.offline.errors import OutputError
from flintmq.spark.jobs.rebuild.build_directory import old_directory, views_directory

VIEW_NAMES: Final = ("consumequeue", "index")
EXTENSION_NAME: Final = "consumequeue_ext"

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_CANNOT: Final = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)

Exchange = Callable[[Path, Path], bool]


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def exchange_directories(first: Path, second: Path) -> bool:
    """Let two directories swap their names in one step; return False where that is impossible."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    names = os.fsencode(first), os.fsencode(second)
    result = rename(
        ctypes.c_int(_AT_FDCWD),
        ctypes.c_char_p(names[0]),
        ctypes.c_int(_AT_FDCWD),
        ctypes.c_char_p(names[1]),
        ctypes.c_uint(_RENAME_EXCHANGE),
    )
    if result == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number), str(first), None, str(second))


def refuse_elsewhere(root: Path) -> None:
    """Raise OutputError if a view of the store is a link or lies on another file system.

    No directory could be exchanged with it in one step.
    """
    for name in (*VIEW_NAMES, EXTENSION_NAME):
        view = root / name
        if view.is_symlink() or (view.exists() and view.stat().st_dev != root.stat().st_dev):
            reason = "lies on another file system than the store; rebuild into a new directory"
            raise OutputError(view, reason)


def switch_views(root: Path, build: Path, *, exchange: Exchange = exchange_directories) -> None:
    """Replace the views of the store ``root`` by the finished views of ``build``.

    The extension of the queues goes with them: no unit that was made from the log leads there.
    """
    views, old = views_directory(build), old_directory(build)
    for name in VIEW_NAMES:
        new, view = views / name, root / name
        if not new.exists():
            continue
        if not view.exists():
            new.rename(view)
        elif not exchange(new, view):
            view.rename(old / name)
            sync_directory(old)
            new.rename(view)
    if (root / VIEW_NAMES[0]).exists() and (root / EXTENSION_NAME).exists():
        (root / EXTENSION_NAME).rename(old / EXTENSION_NAME)
    for directory in (root, views, old):
        sync_directory(directory)


def finish_interrupted(root: Path, builds: Sequence[Path]) -> list[str]:
    """Complete a switch that was cut off between two renames; return which views it concerned."""
    finished = []
    for build in builds:
        for name in VIEW_NAMES:
            new, old = views_directory(build) / name, old_directory(build) / name
            if old.exists() and not (root / name).exists():
                (new if new.exists() else old).rename(root / name)
                finished.append(name)
    if finished:
        sync_directory(root)
    return finished
