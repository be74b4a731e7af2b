"""Running flags: why a store may not be read or written right now."""

import logging
import threading
from enum import IntFlag
from typing import Final

from flintmq.store.errors import StoreError

logger = logging.getLogger(__name__)


class RunningFlag(IntFlag):
    """One thing that is wrong with a store; the first five values are RocketMQ's."""

    NOT_READABLE = 0x01
    NOT_WRITABLE = 0x02
    QUEUE_WRITE_FAILED = 0x04
    INDEX_WRITE_FAILED = 0x08
    DISK_FULL = 0x10
    SYNC_FAILED = 0x20
    """FlintMQ's own: the kernel has dropped bytes that a sync should have made durable."""

    @property
    def words(self) -> str:
        """The flag as it is told to people: ``disk full``."""
        return str(self.name).lower().replace("_", " ")


LASTING_FLAGS: Final = (
    RunningFlag.QUEUE_WRITE_FAILED | RunningFlag.INDEX_WRITE_FAILED | RunningFlag.SYNC_FAILED
)
"""Flags only a restart clears, because only recovery can repair what they stand for."""

_NOT_QUEUE_WRITABLE: Final = (
    RunningFlag.NOT_WRITABLE | RunningFlag.QUEUE_WRITE_FAILED | RunningFlag.INDEX_WRITE_FAILED
)
_NOT_WRITABLE: Final = _NOT_QUEUE_WRITABLE | RunningFlag.DISK_FULL | RunningFlag.SYNC_FAILED


class RunningFlags:
    """The flags of one store, each with its reason.

    Any thread may set and clear.  What a put or a read asks is kept as plain attributes, which
    are replaced under the lock and read without it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reasons: dict[RunningFlag, str] = {}
        self.bits = RunningFlag(0)
        self.readable = True
        self.writable = True
        self.queue_writable = True

    def set(self, flag: RunningFlag, reason: str) -> None:
        """Raise one flag; a lasting flag keeps its first reason, another takes the newest."""
        assert len(flag) == 1, flag
        with self._lock:
            is_new = flag not in self._reasons
            if is_new or flag not in LASTING_FLAGS:
                self._reasons[flag] = reason
            if is_new:
                self._update(self.bits | flag)
        if is_new:
            logger.warning("store flag set: flag=%s reason=%s", flag.words, reason)

    def clear(self, flag: RunningFlag) -> None:
        """Lower one flag, which may not be a lasting one; nothing happens when it is down."""
        assert len(flag) == 1, flag
        assert flag not in LASTING_FLAGS, flag
        with self._lock:
            reason = self._reasons.pop(flag, None)
            if reason is not None:
                self._update(self.bits & ~flag)
        if reason is not None:
            logger.info("store flag cleared: flag=%s reason=%s", flag.words, reason)

    def check_sync(self) -> None:
        """Raise StoreError when a sync has failed before: what it lost is lost for good."""
        if self.bits & RunningFlag.SYNC_FAILED:
            raise StoreError("; ".join(self.reasons()))

    def reasons(self) -> list[str]:
        """Return what is wrong, in the order of the flags: ``disk full: 97 percent used``."""
        with self._lock:
            return [f"{flag.words}: {reason}" for flag, reason in sorted(self._reasons.items())]

    def _update(self, bits: RunningFlag) -> None:
        self.bits = bits
        self.readable = not bits & RunningFlag.NOT_READABLE
        self.writable = not bits & _NOT_WRITABLE
        # A full disk stops neither dispatch nor the messages already in the log.
        self.queue_writable = not bits & _NOT_QUEUE_WRITABLE
