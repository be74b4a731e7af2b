"""Small files that are whole and durable at every instant."""

import contextlib
import os
from pathlib import Path


def replace_durably(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Write a file so that after a crash either the old or the new content is there.

    ``mode`` are the permissions of the new file, for one that not everybody may read.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    try:
        if mode is not None:
            temporary.unlink(missing_ok=True)
            temporary.touch(mode=mode & 0o600, exist_ok=False)
        with temporary.open("wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
