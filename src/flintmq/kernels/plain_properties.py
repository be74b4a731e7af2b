"""Which messages are plain, judged by their properties text in machine code.

This is the rule of ``flintmq.store.append_group.plain_properties``, by the same list of names.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from flintmq.kernels.compiled import Bytes, Ints, Longs, kernel
from flintmq.kernels.dispatch_fields import NAME_END, PAIR_END
from flintmq.kernels.properties import PAIRS_MAX, has_name
from flintmq.kernels.texts import are_equal, find_byte
from flintmq.model import property_names

NOT_PLAIN: Final = -1
"""The answer of a kernel to what it leaves to Python."""


def _joined(*names: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return names one behind the other, and where each ends."""
    encoded = [name.encode() for name in names]
    return np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([len(one) for one in encoded])


_STEERING_NAMES, _STEERING_ENDS = _joined(*property_names.STEERING)
_WAIT: Final = np.frombuffer(property_names.WAIT.encode(), np.uint8)


@kernel
def judge_properties(
    data: Bytes, start: int, end: int, names_at: Longs, names_size: Ints
) -> tuple[int, int]:
    """Return where the pair of WAIT begins and ends in a properties text, its end if it has none.

    The first number is NOT_PLAIN for a text that is not made of pairs, has a name twice, or has
    one that steers what the broker does.  ``names_at`` and ``names_size`` are scratch space for
    PAIRS_MAX names.
    """
    wait_at = wait_end = end
    count = 0
    at = start
    while at < end:
        pair_end = find_byte(data, at, end, PAIR_END)
        name_end = find_byte(data, at, pair_end, NAME_END)
        size = name_end - at
        if (
            size == 0
            or name_end + 1 >= pair_end
            or find_byte(data, name_end + 1, pair_end, NAME_END) < pair_end
            or count == PAIRS_MAX
            or _is_steering(data, at, size)
        ):
            return NOT_PLAIN, 0
        names_at[count] = at
        names_size[count] = size
        if has_name(data, names_at, names_size, 0, count):
            return NOT_PLAIN, 0
        if size == len(_WAIT) and are_equal(data, at, _WAIT, 0, size):
            wait_at, wait_end = at, pair_end + 1
        count += 1
        at = pair_end + 1
    return wait_at, wait_end


@kernel
def _is_steering(data: Bytes, at: int, size: int) -> bool:
    begin = 0
    for end in _STEERING_ENDS:
        if end - begin == size and are_equal(data, at, _STEERING_NAMES, begin, size):
            return True
        begin = end
    return False
