"""A file system in memory that loses what was not synced.

``SimulatedFiles`` stands in for ``LocalFiles``.  It counts every call, can stop at any of them as
if the power had failed, can make any of them fail, and then shows the file systems that a next
start may find.  Writes through a view need no call: two contents of each file are compared.
"""

import builtins
import errno
import threading
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final, NamedTuple, NoReturn

from flintmq.store.clock import Clock
from flintmq.store.errors import StoreLoadError, StoreLockedError
from flintmq.store.files.interface import (
    DiskUsage,
    FileEntry,
    FileLock,
    MappedRegion,
    create_by_rename,
)
from flintmq.store.files.local_region import TypedErrors
from flintmq.testing.clock import ManualClock
from flintmq.testing.simulated_disk import Disk, NameChange, os_error
from flintmq.testing.simulated_inode import PAGE_SIZE, Inode, Survival, pages_of
from flintmq.testing.simulated_region import SimulatedRegion

ROOT: Final = Path("/store")
"""A directory that is durably there from the start."""

_UNLIMITED: Final = 1 << 40


class SimulatedCrash(BaseException):
    """The machine stopped before this call; nothing catches it but the test."""

    def __init__(self, call_number: int) -> None:
        self.call_number = call_number
        super().__init__(f"crashed before call {call_number}")


class Fault(Enum):
    """How a call fails."""

    EIO = errno.EIO
    """An I/O error.  After a sync that fails so, dirty pages count as clean and are lost."""
    ENOSPC = errno.ENOSPC
    """The disk is full."""
    SHORT_WRITE = -1
    """Half of the bytes are written, then the disk is full."""


class Call(NamedTuple):
    """One call of ``SimulatedFiles`` or of a region; its number is its index in ``calls``."""

    operation: str
    path: Path
    changes: bool
    """Whether it changes anything: a crash before a call that only looks shows nothing new."""


class SimulatedFiles:
    """A ``Files`` in memory; tests may use it from several threads."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        root: Path = ROOT,
        capacity: int | None = None,
        checks_reservations: bool = True,
    ) -> None:
        """Make a file system that holds the empty directory ``root``.

        ``capacity`` limits the bytes of all files.  With ``checks_reservations`` a sync fails the
        test when bytes were written through a view that nobody had reserved.
        """
        self.clock: Clock = clock if clock is not None else ManualClock()
        self.root = root
        self.capacity = capacity
        self.checks_reservations = checks_reservations
        self.calls: list[Call] = []
        """Every call so far."""
        self.crash_at: int | None = None
        """The number of the call before which everything stops."""
        self.before_change: Callable[[int], None] | None = None
        """Is told the number of each call that changes something, before it does."""
        self.boot_number = 1
        """Which run of the machine this is; a power failure begins the next one."""
        self._faults: dict[int, Fault] = {}
        self._next_faults: list[tuple[str, str | None, Fault]] = []
        self._frozen: dict[Inode, bytes] | None = None
        self._locks: set[Path] = set()
        self._mutex = threading.RLock()
        self._disk = Disk(root)

    # -- steering ----------------------------------------------------------------------------

    def fail(self, call_number: int, fault: Fault) -> None:
        """Let the call of that number fail."""
        self._faults[call_number] = fault

    def fail_next(self, operation: str, fault: Fault, *, name: str | None = None) -> None:
        """Let the next call of an operation fail, of any file or of one with that name."""
        self._next_faults.append((operation, name, fault))

    @property
    def crashed(self) -> bool:
        """Whether ``crash_at`` was reached."""
        return self._frozen is not None

    def count(self, operation: str) -> int:
        """Return how many calls of an operation there were."""
        return sum(call.operation == operation for call in self.calls)

    def contents(self, path: Path) -> dict[str, bytes | None]:
        """Return all that the process sees below a directory, without a call that is counted.

        Files have their contents, and directories None.
        """
        with self._mutex:
            return dict(self._disk.contents(path))

    def change_numbers(self) -> list[int]:
        """Return the numbers of the calls that change something: the places worth a crash."""
        return [number for number, call in enumerate(self.calls) if call.changes]

    def write_back(self, rng: Random, *, share: float = 0.5) -> None:
        """Let the kernel write some dirty pages to the disk on its own, as it may at any time.

        Called between the steps of a test this gives images that mix several moments.
        """
        with self._mutex:
            for inode in self._disk.inodes():
                inode.write_back(lambda _: rng.random() < share)

    # -- what a next start finds -------------------------------------------------------------

    def process_crash_image(self) -> "SimulatedFiles":
        """Return the file system after the process was killed: all it has written is there.

        What was not synced is still not on the disk, and a power failure may take it yet.
        """
        with self._mutex:
            image = self._image(self._disk.copy(self._seen))
            image.boot_number = self.boot_number
            return image

    def crash_images(self, rng: Random, count: int) -> "Iterator[SimulatedFiles]":
        """Yield file systems that a power failure may leave.

        First the one where nothing survived that was not synced, then the one where everything
        did, then ``count`` random ones.  In those a file has any size it had since its last sync;
        a page is old, new, or torn between sectors or words; of the operations on names a prefix
        has happened, as with ext4, and at times a few later ones that do not need the rest.
        """
        disk = self._disk
        with self._mutex:
            nothing = self._image(disk.after_power_loss(set(), lambda inode: inode.durable))
            everything = disk.after_power_loss(disk.journal.all_survive(), self._seen)
        yield nothing
        yield self._image(everything)
        for _ in range(count):
            yield self._random_image(rng)

    def _random_image(self, rng: Random) -> "SimulatedFiles":
        shared = Survival(rng) if rng.random() < 0.5 else None

        def survived(inode: Inode) -> bytes:
            survival = shared if shared is not None else Survival(rng)
            return survival.content_of(inode, self._seen(inode))

        with self._mutex:
            survivors = self._disk.journal.some_survive(rng)
            return self._image(self._disk.after_power_loss(survivors, survived))

    def _image(self, disk: Disk) -> "SimulatedFiles":
        image = SimulatedFiles(
            clock=self.clock,
            root=self.root,
            capacity=self.capacity,
            checks_reservations=self.checks_reservations,
        )
        image._disk = disk
        image.boot_number = self.boot_number + 1
        return image

    def _seen(self, inode: Inode) -> bytes:
        """Return what the process saw: at the moment of the crash, when there was one."""
        if self._frozen is not None and inode in self._frozen:
            return self._frozen[inode]
        return bytes(inode.content)

    # -- Files -------------------------------------------------------------------------------

    def open(self, path: Path, *, read_only: bool = False) -> MappedRegion:
        """Map an existing file at its current size; an empty file raises StoreLoadError."""
        with self.call("open", path, changes=False):
            inode = self._disk.inode(path)
            if not inode.content:
                raise StoreLoadError(path, "the file is empty")
            return SimulatedRegion(self, inode, path, read_only=read_only)

    def create(self, path: Path, size: int, *, reserve: bool = True) -> MappedRegion:
        """Make and map a new file of ``size`` zeros, and the directories above it."""
        assert size > 0, size
        with self.call("create", path, size=size):
            directory = self._disk.make_directories(path.parent)
            if path.name in directory.visible:
                raise os_error(errno.EEXIST)
            inode = Inode(bytearray(size), modified_ms=self.clock.now_ms())
            if reserve:
                self.reserve(inode, 0, size)
            self._disk.journal.add(NameChange(directory, path.name, inode))
            return SimulatedRegion(self, inode, path, read_only=False)

    def create_durable(self, path: Path, size: int) -> MappedRegion:
        """Make and map a new reserved file that is durably there whole, or not at all."""
        return create_by_rename(self, path, size)

    def read(self, path: Path, *, limit: int | None = None) -> bytes:
        """Return the content of a file, at most ``limit`` bytes; FileNotFoundError passes."""
        with self.call("read", path, changes=False):
            if self._disk.find(path) is not None:
                return bytes(self._disk.inode(path).content[:limit])
        raise os_error(errno.ENOENT)

    def write(self, path: Path, data: bytes) -> None:
        """Make ``data`` the content of a file, new or not: neither atomic nor synced."""
        with self.call("write", path, size=len(data), short=True) as fault:
            directory = self._disk.directory(path.parent)
            if path.name not in directory.visible:
                empty = Inode(bytearray(), modified_ms=self.clock.now_ms())
                self._disk.journal.add(NameChange(directory, path.name, empty))
            inode = self._disk.inode(path)
            inode.replace(b"")
            written = data[: len(data) // 2] if fault is not None else data
            self.reserve(inode, 0, len(written))
            inode.replace(written)
            inode.modified_ms = self.clock.now_ms()
            if fault is not None:
                raise os_error(errno.ENOSPC)

    def sync(self, path: Path) -> None:
        """Make the content of a file durable."""
        found = self._disk.find(path)
        dropped = found.drop if isinstance(found, Inode) else None
        with self.call("sync", path, on_failure=dropped):
            self.sync_inode(self._disk.inode(path))

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        with self.call("sync_directory", path):
            self._disk.journal.sync(self._disk.directory(path))

    def sync_below(self, path: Path) -> None:
        """Make all files and names below a directory durable, in one call that fails as one."""

        def dropped() -> None:
            for node in self._disk.below(path):
                if isinstance(node, Inode):
                    node.drop()

        with self.call("sync_below", path, on_failure=dropped):
            for node in self._disk.below(path):
                if isinstance(node, Inode):
                    self.sync_inode(node)
                else:
                    self._disk.journal.sync(node)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, in place of a file that has it already."""
        with self.call("rename", source):
            inode = self._disk.inode(source)
            self._disk.journal.add(
                NameChange(self._disk.directory(source.parent), source.name, None),
                NameChange(self._disk.directory(target.parent), target.name, inode),
            )

    def remove(self, path: Path, *, missing_ok: bool = False) -> None:
        """Remove a file; FileNotFoundError passes unless ``missing_ok``."""
        with self.call("remove", path):
            if self._disk.find(path) is not None:
                self._disk.inode(path)
                self._disk.journal.add(
                    NameChange(self._disk.directory(path.parent), path.name, None)
                )
                return
        if not missing_ok:
            raise os_error(errno.ENOENT)

    def remove_directory(self, path: Path) -> bool:
        """Remove an empty directory; return False when it is not empty or not there."""
        with self.call("remove_directory", path):
            if self._disk.find(path) is None or self._disk.directory(path).visible:
                return False
            self._disk.journal.add(NameChange(self._disk.directory(path.parent), path.name, None))
            return True

    def make_directory(self, path: Path) -> None:
        """Make a directory and those above it, as far as they are missing."""
        with self.call("make_directory", path):
            self._disk.make_directories(path)

    def list(self, path: Path) -> builtins.list[FileEntry]:
        """Return the entries of a directory by name; none when the directory is missing."""
        with self.call("list", path, changes=False):
            if self._disk.find(path) is None:
                return []
            return [
                FileEntry(name, len(node.content), node.modified_ms, is_directory=False)
                if isinstance(node, Inode)
                else FileEntry(name, PAGE_SIZE, 0, is_directory=True)
                for name, node in sorted(self._disk.directory(path).visible.items())
            ]

    def exists(self, path: Path) -> bool:
        """Tell whether there is a file or directory of that name."""
        with self.call("exists", path, changes=False):
            return self._disk.find(path) is not None

    def size(self, path: Path) -> int | None:
        """Return the bytes of a file, None when it is missing."""
        with self.call("size", path, changes=False):
            return None if self._disk.find(path) is None else len(self._disk.inode(path).content)

    def modified_ms(self, path: Path) -> int | None:
        """Return when a file was last written, None when it is missing."""
        with self.call("modified_ms", path, changes=False):
            return None if self._disk.find(path) is None else self._disk.inode(path).modified_ms

    def lock(self, path: Path) -> FileLock:
        """Take the lock that marks a store as in use; StoreLockedError when somebody has it."""
        with self.call("lock", path):
            if path in self._locks:
                raise StoreLockedError(path)
            directory = self._disk.make_directories(path.parent)
            if path.name not in directory.visible:
                inode = Inode(bytearray(), modified_ms=self.clock.now_ms())
                self._disk.journal.add(NameChange(directory, path.name, inode))
            inode = self._disk.inode(path)
            inode.replace(b"lock")
            inode.sync()
            self._locks.add(path)
            return _Lock(self._locks, path)

    def lock_directory(self, path: Path) -> FileLock:
        """Keep other stores out of a directory without leaving a file in it."""
        with self.call("lock", path):
            if path in self._locks:
                raise StoreLockedError(path)
            self._locks.add(path)
            return _Lock(self._locks, path)

    def usage(self, path: Path) -> DiskUsage | None:
        """Return how full the file system of ``path`` is, None when there is no such path."""
        with self.call("usage", path, changes=False):
            if self._disk.find(path) is None:
                return None
            total = self.capacity if self.capacity is not None else _UNLIMITED
            free = max(total - self._disk.used(), 0)
            return DiskUsage(total, free, free)

    def boot_id(self) -> str:
        """Return what names this run of the machine."""
        return f"simulated-{self.boot_number}"

    # -- what regions need -------------------------------------------------------------------

    def reserve(self, inode: Inode, start: int, end: int) -> None:
        """Give a range of a file blocks, while there is room."""
        wanted = set(pages_of(start, end)) - inode.reserved
        room = self.capacity
        if room is not None and self._disk.used() + len(wanted) * PAGE_SIZE > room:
            raise os_error(errno.ENOSPC)
        inode.reserved |= wanted

    def sync_inode(self, inode: Inode) -> None:
        """Copy what is seen of a file to the disk."""
        if inode.sync():
            inode.modified_ms = self.clock.now_ms()

    def call(
        self,
        operation: str,
        path: Path,
        *,
        changes: bool = True,
        size: int = 0,
        short: bool = False,
        on_failure: Callable[[], None] | None = None,
    ) -> "_CountedCall":
        """Count a call, and stop or fail at it; what goes wrong inside becomes a typed error.

        A call that writes says so with ``short``: it is told when to write half and fail.
        """
        return _CountedCall(self, Call(operation, path, changes), size, short, on_failure)

    def _begin(self, call: Call) -> Fault | None:
        """Count a call; return how it is to fail, if it is."""
        number = len(self.calls)
        if self.crash_at is not None and number >= self.crash_at:
            if self._frozen is None:
                self._frozen = {inode: bytes(inode.content) for inode in self._disk.inodes()}
            raise SimulatedCrash(number)
        if self.before_change is not None and call.changes:
            self.before_change(number)
        self.calls.append(call)
        for rule in self._next_faults:
            operation, name, fault = rule
            if operation == call.operation and name in (None, call.path.name):
                self._next_faults.remove(rule)
                return fault
        return self._faults.get(number)


class _CountedCall:
    """A call of the file system while it lasts: nobody else has one, and errors are typed."""

    # No generator: a test of crashes makes some hundred thousand calls.
    __slots__ = ("_call", "_files", "_on_failure", "_short", "_size")

    def __init__(
        self,
        files: SimulatedFiles,
        call: Call,
        size: int,
        short: bool,
        on_failure: Callable[[], None] | None,
    ) -> None:
        self._files = files
        self._call = call
        self._size = size
        self._short = short
        self._on_failure = on_failure

    def __enter__(self) -> Fault | None:
        self._files._mutex.acquire()
        try:
            fault = self._files._begin(self._call)
            if fault is not None and not (self._short and fault is Fault.SHORT_WRITE):
                self._fail(fault)
        except BaseException:
            self._files._mutex.release()
            raise
        return fault

    def _fail(self, fault: Fault) -> NoReturn:
        if self._on_failure is not None:
            self._on_failure()
        with self._errors():
            raise os_error(errno.EIO if fault is Fault.EIO else errno.ENOSPC)

    def _errors(self) -> TypedErrors:
        operation = self._call.operation.replace("_", " ")
        return TypedErrors(self._call.path, operation, size=self._size)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._files._mutex.release()
        if error is not None:
            self._errors().__exit__(kind, error, trace)


class _Lock:
    def __init__(self, held: set[Path], path: Path) -> None:
        self._held = held
        self._path: Path | None = path

    def release(self) -> None:
        if self._path is not None:
            self._held.discard(self._path)
            self._path = None
