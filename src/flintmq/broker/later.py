"""What takes long to load and can be done without: it is loaded beside the work."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

logger = logging.getLogger(__name__)

ASK_COUNT: Final = 64
"""So often something is asked for before it is worth its memory and its time."""

_T = TypeVar("_T")


class Later(Generic[_T]):
    """Gives None until it was asked for often enough and the thing is loaded, then the thing."""

    def __init__(self, load: Callable[[], _T], *, ask_count: int = ASK_COUNT) -> None:
        """Keep in mind how to load; ``load`` raises ImportError where that is impossible."""
        self._load = load
        self._asks_left = ask_count
        self._loaded: _T | None = None
        self._thread: threading.Thread | None = None

    def get(self) -> _T | None:
        """Return what was loaded, if it was."""
        if self._loaded is None and self._asks_left > 0:
            self._asks_left -= 1
            if self._asks_left == 0:
                # No daemon: the end of the process must not come while code is compiled.
                self._thread = threading.Thread(target=self._run, name="flintmq-loads")
                self._thread.start()
        return self._loaded

    def wait(self) -> None:
        """Wait until what is being loaded is there, or is known to be impossible."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self._loaded = self._load()
        except ImportError as error:
            logger.info("machine code is not used: %s", error)
        except Exception:
            logger.exception("machine code is not used")
        else:
            logger.info("machine code is loaded: seconds=%.1f", time.monotonic() - began)
