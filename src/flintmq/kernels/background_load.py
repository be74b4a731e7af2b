"""Optional modules that take long to load: they are loaded in a thread while work goes on."""

import contextlib
import gc
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

logger = logging.getLogger(__name__)

ASK_COUNT: Final = 64
"""How often a module is asked for before loading it is worth the memory and the time."""

THREAD_NAME: Final = "flintmq-loads"

_T = TypeVar("_T")
_pausing: Final = threading.Lock()
_pause_count = 0
"""How many threads load with the garbage collector paused."""
_freezes = False
"""Whether what is loaded is frozen.  To ask the collector whether anything is frozen would not do:
it counts all that is, with the interpreter held, 15 ms for what machine code brings."""
_wanted: Final[weakref.WeakSet["LoadOnDemand[Any]"]] = weakref.WeakSet()
"""What this process may ask for."""


def freeze_loaded() -> None:
    """Have the garbage collector never look at what there is, nor at what will be loaded."""
    global _freezes
    _freezes = True
    gc.freeze()


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the garbage collector from looking at what is loaded, now and, in a server, later.

    Machine code brings some hundred thousand objects that stay.  Every look at them takes as long
    as a turn of a broker's loop may last, and holds all threads.
    """
    global _pause_count
    with _pausing:
        if not gc.isenabled() and _pause_count == 0:
            is_pausing = False  # Somebody else has it paused.
        else:
            is_pausing = True
            _pause_count += 1
            gc.disable()
    try:
        yield
    finally:
        with _pausing:
            # A server wants that (`freeze_loaded`); a program of others may not.
            if _freezes:
                gc.freeze()
            if is_pausing:
                _pause_count -= 1
                if _pause_count == 0:
                    gc.enable()


class LoadOnDemand(Generic[_T]):
    """Loads an optional module in a background thread, once it was asked for often enough.

    Callers do without it, on a slower path, until it is ready.  A server has it loaded before
    anybody asks (`load_ahead`).
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
        self._begin_lock = threading.Lock()
        self._has_begun = False
        if ask_count:
            _wanted.add(self)

    @property
    def loaded(self) -> _T | None:
        """What was loaded, None while it is not ready; to look at it is not to ask for it."""
        return self._loaded

    def get(self) -> _T | None:
        """Return what was loaded, None while it is not ready."""
        if self._loaded is None and self._asks_left > 0:
            self._asks_left -= 1
            if self._asks_left == 0 and self._begin():
                if self._program:
                    # A daemon: nobody waits for another process at the end of this one.
                    threading.Thread(target=self._prepare, name=THREAD_NAME, daemon=True).start()
                else:
                    self._start()
        return self._loaded

    def _begin(self) -> bool:
        """Return whether the caller is the one who loads."""
        with self._begin_lock:
            is_first, self._has_begun = not self._has_begun, True
        return is_first

    def is_compiled(self) -> bool:
        """Whether there is nothing to compile; ImportError without numba."""
        # Needed once, so it is no part of a start.
        from flintmq.kernels.compile_ahead import is_compiled

        return not self._program or is_compiled(self._program)

    def load_now(self) -> None:
        """Load in this thread, unless that is done or under way already."""
        if self._begin():
            self._run()

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
            with collector_paused():
                self._loaded = self._load()
        except ImportError as error:
            self._do_without(error)
        except Exception:
            logger.exception("machine code is not used")
        else:
            logger.info("machine code is loaded: seconds=%.1f", time.monotonic() - began)


def load_ahead() -> threading.Thread:
    """Load what this process may ask for before it does, in a thread; return that.

    Where something was never compiled on this machine, all of it waits until it is asked for: to
    compile takes long, and most servers never need it.
    """
    # No daemon, as above; the end of the process waits for what is being loaded, not for the rest.
    thread = threading.Thread(target=_load_wanted, name=THREAD_NAME)
    thread.start()
    return thread


def _load_wanted() -> None:
    # Needed once, so it is no part of a start.
    from flintmq.kernels.library_load import LLVM_PACKAGE, load_libraries

    loaders = list(_wanted)
    with collector_paused():
        try:
            if not all(loader.is_compiled() for loader in loaders):
                return
        except ImportError:
            return  # Whoever asks for it says so.
        if loaders:
            load_libraries(LLVM_PACKAGE)
        for loader in loaders:
            if not threading.main_thread().is_alive():
                return
            loader.load_now()
