"""Whether a whole file system can be brought to stable storage in one call, and how."""

import os
import re
import sys
from collections.abc import Callable
from functools import cache
from typing import Final

_TELLS_SINCE: Final = (5, 8)
"""Before, Linux said nothing of pages that could not be written."""


def tells_failures(release: str) -> bool:
    """Whether the kernel of that release reports failures to whoever syncs a file system."""
    numbers = re.match(r"([0-9]+)\.([0-9]+)", release)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= _TELLS_SINCE


@cache
def _syncfs() -> Callable[[int], int] | None:
    """Return Linux' call, None where there is none, or one that cannot be relied on."""
    if sys.platform != "linux" or not tells_failures(os.uname().release):
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
    or before.
    """
    call = _syncfs()
    if call is None:
        return False
    if call(descriptor) != 0:
        import ctypes

        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return True
