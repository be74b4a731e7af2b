"""Whether a whole file system can be brought to stable storage in one call, and how."""

import os
import sys
from collections.abc import Callable
from functools import cache


@cache
def _syncfs() -> Callable[[int], int] | None:
    """Return Linux' call, None where there is none."""
    if sys.platform != "linux":
        return None
    # Not at the start of a broker, which has no use for it.
    import ctypes

    try:
        call: Callable[[int], int] = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return None
    return call


def sync_file_system(descriptor: int) -> bool:
    """Make all of the file system that holds a file durable; False where no call can do it.

    The kernel reports a failure to write that nobody was told of since the descriptor was opened,
    or before (Linux 5.8 and newer).
    """
    call = _syncfs()
    if call is None:
        return False
    if call(descriptor) != 0:
        import ctypes

        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return True
