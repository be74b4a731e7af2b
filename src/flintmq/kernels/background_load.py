"""Optional modules that take long to load: they are loaded in a thread while work goes on."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

logger = logging.getLogger(__name__)

ASK_COUNT: Final = 64
"""How often a module is asked for before loading it is worth the memory and the time."""

THREAD_NAME: Final = "flintmq-loads"

_T = TypeVar("_T")


class LoadOnDemand(Generic[_T]):
    """Loads an optional module in a background thread, once it was asked for often enough.

    Callers do without it, on a slower path, until it is ready.
    """

    def __init__(
        self, load: Callable[[], _T], *, ask_count: int = ASK_COUNT, program: str = ""
    ) -> None:
        """Note how to load; ``load`` raises ImportError where the module is not installed.

        ``program`` loads the same; where it never did on this machine, a process beside this one
        compiles it first (`compile_ahead`).
        """
        self._load = load
        self._program = program
        self._asks_left = ask_count
        self._loaded: _T | None = None

    @property
    def loaded(self) -> _T | None:
        """What was loaded, None while it is not ready; to look at it is not to ask for it."""
        return self._loaded

    def get(self) -> _T | None:
        """Return what was loaded, None while it is not ready."""
        if self._loaded is None and self._asks_left > 0:
            self._asks_left -= 1
            if self._asks_left == 0:
                if self._program:
                    # A daemon: nobody waits for another process at the end of this one.
                    threading.Thread(target=self._prepare, name=THREAD_NAME, daemon=True).start()
                else:
                    self._start()
        return self._loaded

    def _start(self) -> None:
        # No daemon: the end of the process must not come while code is compiled.
        threading.Thread(target=self._run, name=THREAD_NAME).start()

    def _prepare(self) -> None:
        # Needed once, so it is no part of a start.
        from flintmq.kernels.compile_ahead import compile_ahead

        try:
            compile_ahead(self._program)
        except ImportError as error:
            self._do_without(error)
        except Exception:
            logger.exception("machine code is not used")
        else:
            with contextlib.suppress(RuntimeError):  # This process is at its end.
                self._start()

    def _do_without(self, error: ImportError) -> None:
        logger.info("machine code is not used, so requests cost more (extra 'fast'): %s", error)

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self._loaded = self._load()
        except ImportError as error:
            self._do_without(error)
        except Exception:
            logger.exception("machine code is not used")
        else:
            logger.info("machine code is loaded: seconds=%.1f", time.monotonic() - began)
