"""A file mapped into memory, with a descriptor of its own or without one.

Before Python 3.13 an ``mmap`` keeps a descriptor for as long as it lives, so that a broker with
50,000 queues would need as many.  A process that has many descriptors open therefore makes further
maps by the system call itself (`UntrackedMap`).  It takes `ctypes`, which is loaded only then.

The kernel bounds the maps of a process as well.  At its bound not only files have no room: the
allocator of C and new threads need maps too, and a process without any may end at any time.  So
some are left to them, and a file that would take those is refused with the reason.
"""

from __future__ import annotations

import errno
import functools
import mmap
import os
import sys
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from flintmq.store.files.page_residency import address_of

if TYPE_CHECKING:
    from collections.abc import Callable

UNTRACKED_FROM: Final = 512
"""A next descriptor of this number says that many are open: the lowest free one comes next."""

LIMIT_FILE: Final = Path("/proc/sys/vm/max_map_count")
OTHER_MAPS: Final = 2048
"""Maps that are left for libraries, threads and memory."""


class _MapRoom:
    """Counts the mapped files of this process, as far as the kernel allows them."""

    def __init__(self, file_max: int) -> None:
        self._file_max = file_max
        self._count = 0
        self._lock = threading.Lock()

    def take(self) -> None:
        """Count one more; OSError if there may be none."""
        with self._lock:
            if self._count >= self._file_max:
                reason = f"{self._count} files are mapped, as many as vm.max_map_count has room for"
                raise OSError(errno.ENOMEM, reason)
            self._count += 1

    def give_back(self) -> None:
        """Count one less."""
        with self._lock:
            self._count -= 1


def file_count_max(limit_file: Path = LIMIT_FILE) -> int:
    """Return how many files may be mapped."""
    try:
        limit = int(limit_file.read_text())
    except (OSError, ValueError):
        return sys.maxsize
    return max(limit - OTHER_MAPS, limit // 2)


@functools.cache
def _room() -> _MapRoom:
    return _MapRoom(file_count_max())


class FileMap(Protocol):
    """A mapped file."""

    view: memoryview
    """Its bytes."""

    @property
    def address(self) -> int:
        """Where it is mapped; only for maps that may be written."""
        ...

    def advise(self, start: int, size: int, advice: int) -> None:
        """Tell the kernel how a range will be used that begins with a page."""
        ...

    def close(self) -> None:
        """Release the view and unmap the file; BufferError if somebody still reads it.

        Then the file is unmapped when the last reader has let go.
        """
        ...


def map_file(descriptor: int, size: int, *, read_only: bool) -> FileMap:
    """Map the file behind a descriptor, which stays the caller's."""
    is_untracked = sys.version_info < (3, 13) and _next_number(descriptor) >= UNTRACKED_FROM
    make = UntrackedMap if is_untracked else PythonMap
    _room().take()
    try:
        return make(descriptor, size, read_only=read_only)
    except BaseException:
        _room().give_back()
        raise


def _next_number(descriptor: int) -> int:
    """Return the number that a copy of a descriptor gets, a high one if there can be none."""
    try:
        number = os.dup(descriptor)
    except OSError:
        return UNTRACKED_FROM
    os.close(number)
    return number


class PythonMap:
    """A map made by Python, which keeps a descriptor before Python 3.13."""

    def __init__(self, descriptor: int, size: int, *, read_only: bool) -> None:
        access = mmap.ACCESS_READ if read_only else mmap.ACCESS_WRITE
        if sys.version_info >= (3, 13):
            self._map = mmap.mmap(descriptor, size, access=access, trackfd=False)
        else:
            self._map = mmap.mmap(descriptor, size, access=access)
        self.view = memoryview(self._map)
        self._address: int | None = None

    @property
    def address(self) -> int:
        """Where it is mapped."""
        if self._address is None:
            self._address = address_of(self._map)
        return self._address

    def advise(self, start: int, size: int, advice: int) -> None:
        """Tell the kernel how a range will be used."""
        self._map.madvise(advice, start, size)

    def close(self) -> None:
        """Release the view and unmap the file."""
        _room().give_back()
        self.view.release()
        self._map.close()


class UntrackedMap:
    """A map made by the system call, which keeps no descriptor.

    Every view of it keeps an array alive, and the file is unmapped when that goes: nobody can read
    where nothing is mapped any more.
    """

    def __init__(self, descriptor: int, size: int, *, read_only: bool) -> None:
        import ctypes

        calls = _calls()
        self.address: int = calls.map(descriptor, size, read_only=read_only)
        array = (ctypes.c_char * size).from_address(self.address)
        weakref.finalize(array, calls.unmap, self.address, size).atexit = False
        self._array = weakref.ref(array)
        self._advise = calls.advise
        view = memoryview(array).cast("B")
        self.view = view.toreadonly() if read_only else view

    def advise(self, start: int, size: int, advice: int) -> None:
        """Tell the kernel how a range will be used."""
        self._advise(self.address + start, size, advice)

    def close(self) -> None:
        """Release the view; that of the last reader unmaps the file."""
        _room().give_back()
        self.view.release()
        if self._array() is not None:
            raise BufferError("somebody still reads the map")


class _Calls:
    """The system calls of maps."""

    def __init__(self) -> None:
        import ctypes

        library = ctypes.CDLL(None, use_errno=True)
        self._error_number: Callable[[], int] = ctypes.get_errno
        self._failed = ctypes.c_void_p(-1).value
        self._map: Any = library.mmap
        self._map.restype = ctypes.c_void_p
        self._map.argtypes = (
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_long,
        )
        self._unmap: Any = library.munmap
        self._unmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        self._advise: Any = library.madvise
        self._advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

    def map(self, descriptor: int, size: int, *, read_only: bool) -> int:
        """Map a file; return where."""
        protection = mmap.PROT_READ | (0 if read_only else mmap.PROT_WRITE)
        address = self._map(None, size, protection, mmap.MAP_SHARED, descriptor, 0)
        if address is None or address == self._failed:
            self._fail()
        return int(address)

    def unmap(self, address: int, size: int) -> None:
        """Unmap what was mapped at an address."""
        self._unmap(address, size)

    def advise(self, address: int, size: int, advice: int) -> None:
        """Tell the kernel how pages will be used."""
        if self._advise(address, size, advice):
            self._fail()

    def _fail(self) -> None:
        number = self._error_number()
        raise OSError(number, os.strerror(number))


@functools.cache
def _calls() -> _Calls:
    return _Calls()
