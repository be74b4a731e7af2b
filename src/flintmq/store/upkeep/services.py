"""The threads of a store: each drives one step function and does nothing but wait for the disk.

A thread that computes would only steal the interpreter lock from the owner; these spend their
time in ``fdatasync`` and ``pwrite``, which release it.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from flintmq.store.errors import StoreError
from flintmq.store.wake_up import WakeUp

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)


class Service:
    """A named thread that calls ``step`` whenever it is woken or the interval has passed.

    An interval that may change is given by a function.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], object],
        *,
        interval_ms: int | Callable[[], int],
        wake: WakeUp | None = None,
    ) -> None:
        self._step = step
        self._interval_ms = interval_ms
        self._wake = wake or WakeUp()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping:
            interval_ms = self._interval_ms
            self._wake.wait((interval_ms if isinstance(interval_ms, int) else interval_ms()) / 1000)
            if self._stopping:
                return
            try:
                self._step()
            except StoreError as error:
                # The step has told everybody concerned.
                if not error.retriable:
                    logger.exception("service gave up: %s", self._thread.name)
                    return
                logger.warning("service waits: %s: %s", self._thread.name, error)
            except Exception:
                logger.exception("service failed: %s", self._thread.name)

    def stop(self) -> None:
        """Let the step under way finish, and end the thread."""
        self._stopping = True
        self._wake.set()
        self._thread.join()
