"""Replaces the views of a store by finished ones, so that a crash leaves the old or the new ones.

Where the file system can exchange two directories in one step, that is done.  Elsewhere the old
directory is moved into the build directory and then the new one into its place; if the process
ends between the two, `finish_interrupted` of the next run completes the switch, since a directory
is only ever moved to ``old`` when its successor is complete.  A broker that starts before that
finds no queues and makes them anew from the log.

Queues with an extension are never exchanged: units lead to the extension that was made with them,
and would mean other messages' tags in another one.  So the old queues go first, then the old
extension, the new extension comes, and the new queues come last.
"""

import ctypes
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from flintmq.offline.errors import OutputError
from flintmq.offline.queue_extension import DIRECTORY_NAME as EXTENSION_NAME
from flintmq.spark.jobs.rebuild.build_directory import old_directory, views_directory

VIEW_NAMES: Final = ("consumequeue", "index")

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

    With the old queues goes their extension: no unit that was made from the log leads there.
    """
    views, old = views_directory(build), old_directory(build)
    for name in VIEW_NAMES:
        new, view = views / name, root / name
        if not new.exists():
            continue
        is_queues = name == VIEW_NAMES[0]
        if is_queues and (views / EXTENSION_NAME).exists():
            if view.exists():
                view.rename(old / name)
            sync_directory(old)
            _bring_queues_with_extension(root, views, old)
            continue
        if not view.exists():
            new.rename(view)
        elif not exchange(new, view):
            view.rename(old / name)
            sync_directory(old)
            new.rename(view)
        if is_queues and (root / EXTENSION_NAME).exists():
            (root / EXTENSION_NAME).rename(old / EXTENSION_NAME)
    for directory in (root, views, old):
        sync_directory(directory)


def _bring_queues_with_extension(root: Path, views: Path, old: Path) -> None:
    """Bring new queues and their extension to a store that has no queues; go on if cut off."""
    extension = root / EXTENSION_NAME
    if (views / EXTENSION_NAME).exists():
        if extension.exists():
            extension.rename(old / EXTENSION_NAME)
        (views / EXTENSION_NAME).rename(extension)
        for directory in (root, old):
            sync_directory(directory)
    (views / VIEW_NAMES[0]).rename(root / VIEW_NAMES[0])


def finish_interrupted(root: Path, builds: Sequence[Path]) -> list[str]:
    """Complete a switch that was cut off between two renames; return which views it concerned."""
    finished = []
    for build in builds:
        views, old = views_directory(build), old_directory(build)
        for name in VIEW_NAMES:
            if (root / name).exists() or not (old / name).exists():
                continue
            if not (views / name).exists():
                (old / name).rename(root / name)
            elif name == VIEW_NAMES[0]:
                _bring_queues_with_extension(root, views, old)
            else:
                (views / name).rename(root / name)
            finished.append(name)
    if finished:
        sync_directory(root)
    return finished
