"""Which directory compiled kernels are kept in.

The sources of all kernels together name it, with the sources of the layouts and names that they
import, since a compiled kernel has those numbers in it.  So it is right wherever they were loaded
from.  A directory that nobody has used for a month, since its kernels have changed, is removed.
"""

import contextlib
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

UNUSED_SECONDS_MAX: Final = 30 * 24 * 3600.0
"""Kernels of another version that nobody has used for so long are removed."""

_NAME: Final = "flintmq-kernels"
_DIGEST_LENGTH: Final = 16
_SOURCES: Final = (
    "flintmq.kernels",
    "flintmq.format",
    "flintmq.format.stored",
    "flintmq.format.wire",
    "flintmq.model",
)
"""The packages that kernels are made of: their own, and those whose constants they import."""


@cache
def cache_directory() -> Path | None:
    """Return a directory of our own for what is compiled; None if there can be none."""
    for directory in _candidates(f"{_NAME}-{source_digest()}"):
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_ours(directory):
                os.utime(directory)
                remove_unused(directory.parent, time.time())
                return directory
        except OSError:
            continue
    return None


def remove_unused(parent: Path, now: float) -> None:
    """Remove directories of kernels that nobody has used for long; others are left alone."""
    for directory in parent.glob(f"{_NAME}-*"):
        with contextlib.suppress(OSError):
            last_used = directory.stat(follow_symlinks=False).st_mtime
            if now - last_used > UNUSED_SECONDS_MAX and _is_ours(directory):
                shutil.rmtree(directory)
                logger.info("unused kernels removed: directory=%s", directory)


def _candidates(name: str) -> Iterator[Path]:
    given = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    if given:
        yield Path(given) / name
    # In a container a user may have no home, and then there is only this.
    with contextlib.suppress(RuntimeError):
        yield Path.home() / ".cache" / name
    yield Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"


def _is_ours(directory: Path) -> bool:
    """Whether nobody else may write there: what it holds is run."""
    status = directory.stat(follow_symlinks=False)
    is_private = status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(status.st_mode) and is_private and os.access(directory, os.W_OK)


@cache
def source_digest() -> str:
    """Return a digest of the sources of all kernels, from a directory or from a zip file."""
    digest = hashlib.sha256()
    for package in _SOURCES:
        for source in sorted(resources.files(package).iterdir(), key=lambda entry: entry.name):
            if source.name.endswith(".py"):
                digest.update(source.read_bytes())
    return digest.hexdigest()[:_DIGEST_LENGTH]
