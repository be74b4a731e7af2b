"""The garbage collector, kept from looking at what is being loaded."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the garbage collector from looking, again and again, at modules that stay."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
