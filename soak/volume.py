"""A small disk of its own for the store: it can be filled, and it can be kept busy."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_CHUNK_SIZE: Final = 1 << 20
_BUSY_FILE_SIZE: Final = 8 << 20
_SMALL_SIZE: Final = 16 << 20
"""What is taken by writing, after the rest was taken at once."""
_RESERVE: Final = "filler"


class VolumeError(Exception):
    """No volume can be had; that takes root."""


class Volume:
    """A directory that stands for a disk."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path = path
        self.kind = kind

    def fill(self) -> None:
        """Take every free byte."""
        chunk = bytes(_CHUNK_SIZE)
        now = os.statvfs(self.path)
        with (self.path / _RESERVE).open("wb") as file, contextlib.suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, now.f_bavail * now.f_frsize - _SMALL_SIZE)
        for size in (_CHUNK_SIZE, 4096, 1):
            with (
                (self.path / _RESERVE).open("ab", buffering=0) as file,
                contextlib.suppress(OSError),
            ):
                while True:
                    file.write(chunk[:size])

    def free(self) -> None:
        """Give back what `fill` took."""
        (self.path / _RESERVE).unlink(missing_ok=True)

    @property
    def used_ratio(self) -> float:
        """How full it is, from 0 to 1."""
        now = os.statvfs(self.path)
        return 1 - now.f_bavail / now.f_blocks

    def keep_busy(self) -> "subprocess.Popen[bytes]":
        """Start a process that writes and syncs without end: everyone else's syncs wait for it."""
        command = [sys.executable, "-m", "soak.volume", str(self.path / "busy")]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL)


def write_and_sync(path: Path) -> None:
    """Write a file over and over, and sync it each time, until somebody ends this process."""
    chunk = os.urandom(_CHUNK_SIZE)
    with path.open("wb", buffering=0) as file:
        while True:
            file.seek(0)
            with contextlib.suppress(OSError):
                for _ in range(_BUSY_FILE_SIZE // _CHUNK_SIZE):
                    file.write(chunk)
                os.fsync(file.fileno())


@contextlib.contextmanager
def mounted(work: Path, size: int) -> Iterator[Volume]:
    """Mount a file system of its own, on a file or, where there are no loop devices, in memory."""
    path = work / "volume"
    path.mkdir()
    image = work / "image"
    with image.open("wb") as file:
        file.truncate(size)
    kind = "ext4 on a file"
    problem = _try("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
    problem = problem or _try("mount", "-o", "loop", str(image), str(path))
    if problem:
        kind = "tmpfs"
        problem = _try("mount", "-t", kind, "-o", f"size={size}", "flintmq-soak", str(path))
    if problem:
        raise VolumeError(problem)
    try:
        yield Volume(path, kind)
    finally:
        subprocess.run(["umount", str(path)], check=True)
        image.unlink()


def _try(*command: str) -> str:
    """Run a command and return what is wrong with it."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return f"there is no {command[0]} command"
    return (done.stderr.strip() or f"{command[0]} failed") if done.returncode else ""


if __name__ == "__main__":
    write_and_sync(Path(sys.argv[1]))
