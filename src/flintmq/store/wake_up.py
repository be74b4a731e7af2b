"""Waking a thread that waits for work: what is asked for meanwhile is one request."""

import threading


class WakeUp:
    """A flag that is taken down by whoever waits for it.

    It is a bare lock, since an event of the standard library takes a dozen calls to wait for and
    to set, and a put with synchronous flush pays for both.
    """

    __slots__ = ("_down",)

    def __init__(self) -> None:
        self._down = threading.Lock()
        """Held while the flag is down."""
        self._down.acquire()

    def set(self) -> None:
        """Raise the flag, from any thread; it may be up already."""
        if self._down.locked():
            try:
                self._down.release()
            except RuntimeError:
                return  # Another thread has just raised it.

    def is_set(self) -> bool:
        """Return whether the flag is up."""
        return not self._down.locked()

    def wait(self, timeout: float) -> bool:
        """Wait for so many seconds at most and take the flag down; return whether it was up."""
        return self._down.acquire(timeout=timeout)
