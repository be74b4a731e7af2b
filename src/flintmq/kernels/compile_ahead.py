"""Kernels compiled by a process beside the one that is going to use them.

To compile takes many seconds of processor time, which a broker has not: it would slow down what it
does meanwhile.  Another process compiles at low priority and keeps the result, and loading that
takes less than a second.
"""

import hashlib
import importlib.metadata
import logging
import subprocess
import sys
from pathlib import Path
from typing import Final

from flintmq.kernels.cache_directory import cache_directory

logger = logging.getLogger(__name__)

COMPILE_SECONDS_MAX: Final = 600
_POLITELY: Final = "import os; hasattr(os, 'nice') and os.nice(15); "


def compile_ahead(program: str) -> bool:
    """Run a program that loads kernels in a process of its own, unless that was done before.

    It waits for the end of that process: call it in a thread.  Return whether all is compiled; if
    it is not, whoever loads the kernels compiles them itself.  Raises ImportError where numba is
    not installed.
    """
    mark = _mark(program)
    if mark is None:
        return False
    if mark.exists():
        return True
    logger.info("machine code is being compiled, for the first time on this machine")
    try:
        done = subprocess.run(
            [sys.executable, "-c", _POLITELY + program],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMPILE_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        logger.warning("machine code could not be compiled ahead: reason=%s", error)
        return False
    if done.returncode:
        reason = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        logger.warning("machine code could not be compiled ahead: reason=%s", reason)
        return False
    mark.touch()
    return True


def is_compiled(program: str) -> bool:
    """Whether `compile_ahead` has compiled what a program loads; ImportError without numba."""
    mark = _mark(program)
    return mark is not None and mark.exists()


def _mark(program: str) -> Path | None:
    """Return the file that tells that a program's kernels are compiled; None without a cache."""
    try:
        version = importlib.metadata.version("numba")
    except importlib.metadata.PackageNotFoundError as error:
        raise ImportError("numba is not installed") from error
    directory = cache_directory()
    if directory is None:
        return None
    what = f"{program} {version} {sys.version}"
    return directory / f"compiled-{hashlib.sha256(what.encode()).hexdigest()[:16]}"
