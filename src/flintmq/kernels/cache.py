"""Where compiled kernels are kept.

numba compiles a function when it is first called, which takes seconds, and can keep the result
in a file.  Its own cache looks at the file of the function alone, so that a change in a kernel
that another one calls would go unnoticed, and it goes by the path of that file, which is a new
one for each job that ships this package to its executors.  Here the sources of all kernels
together name the directory (`flintmq.kernels.cache_directory`).

Processes take turns at compiling, so a machine compiles each kernel once.  Without that, two of
numba's caches that save at the same time may also give one file name to two signatures.
"""

import contextlib
import fcntl
import logging
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final

from numba.core import caching

from flintmq.kernels.cache_directory import cache_directory, source_digest

logger = logging.getLogger(__name__)

TURN_SECONDS_MAX: Final = 120.0
"""So long a process waits for another one that compiles; then it compiles as well."""

_TURN_POLL_SECONDS: Final = 0.05


class _KernelLocator(caching._CacheLocator):
    """Tells numba's cache where the kernels are kept."""

    def __init__(self, function: Callable[..., Any], path: str) -> None:
        # numba names this file in a warning.
        self._py_file = path
        self._lineno = function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(cache_directory())

    def get_source_stamp(self) -> str:
        return source_digest()

    def get_disambiguator(self) -> str:
        return str(self._lineno)

    @classmethod
    def from_function(cls, function: Callable[..., Any], path: str) -> "_KernelLocator":
        return cls(function, path)


class _KernelCacheImpl(caching.CompileResultCacheImpl):
    _locator_classes = [_KernelLocator]  # noqa: RUF012  # That is how numba declares it.


class _Turn:
    """The turn of this process to compile.  A kernel that another one calls is compiled within.

    numba's own lock lets one thread of a process in here at a time.  The end of a process ends
    its turn.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._file: BinaryIO | None = None

    def begin(self, directory: Path) -> None:
        """Wait for the turn."""
        self._depth += 1
        if self._depth > 1:
            return
        with contextlib.suppress(OSError):
            self._file = (directory / "turn").open("ab")
            deadline = time.monotonic() + TURN_SECONDS_MAX
            while not self._is_locked(self._file) and time.monotonic() < deadline:
                time.sleep(_TURN_POLL_SECONDS)

    def end(self) -> None:
        """Let others have theirs."""
        self._depth -= 1
        if self._depth == 0 and self._file is not None:
            self._file.close()
            self._file = None

    @staticmethod
    def _is_locked(file: BinaryIO) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


_turn: Final = _Turn()


class KernelCache(caching.FunctionCache):
    """The cache of one kernel.

    It saves time and is not needed: a full disk or a damaged file costs a compilation, no job.
    """

    _impl_class = _KernelCacheImpl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled kernel, or None to have it compiled: then `save_overload` follows."""
        found = self._load(sig, target_context)
        if found is not None:
            return found
        _turn.begin(Path(self.cache_path))
        found = self._load(sig, target_context)
        if found is not None:
            _turn.end()
        return found

    def _load(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            logger.warning("kernel not loaded: directory=%s error=%s", self.cache_path, error)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled kernel, if that is possible."""
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            # It reads the list of what is kept before it writes.
            logger.warning("kernel not kept: directory=%s error=%s", self.cache_path, error)
        finally:
            _turn.end()
