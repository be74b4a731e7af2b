"""How many descriptors the files of a store keep open besides their maps.

A broker with tens of thousands of queues has as many mapped files, and each of them is synced from
time to time.  Whoever has not needed its descriptor for the longest lets it go, and opens the file
by its name again when it needs one.
"""

import threading
from collections import OrderedDict
from typing import Final, Protocol

DESCRIPTORS_MAX: Final = 1024


class DescriptorOwner(Protocol):
    """A mapped file that has a descriptor of its own."""

    def let_descriptor_go(self) -> bool:
        """Close the descriptor unless it is in use; return whether it is closed."""
        ...


class DescriptorPool:
    """Knows which files have a descriptor, the oldest first.

    It holds no lock of its own while it calls an owner, so owners may call it at any time.
    """

    def __init__(self, count_max: int = DESCRIPTORS_MAX) -> None:
        assert count_max > 0, count_max
        self._count_max = count_max
        self._lock = threading.Lock()
        self._owners: OrderedDict[DescriptorOwner, None] = OrderedDict()

    def __reduce__(self) -> tuple[type["DescriptorPool"], tuple[int]]:
        """Be sent to another process with the bound only: the files there open their own."""
        return DescriptorPool, (self._count_max,)

    def opened(self, owner: DescriptorOwner) -> None:
        """Note that a file has a descriptor now; another one may have to let go of its own."""
        with self._lock:
            self._owners[owner] = None
            self._owners.move_to_end(owner)
            excess = max(len(self._owners) - self._count_max, 0)
            oldest = [self._owners.popitem(last=False)[0] for _ in range(excess)]
        for one in oldest:
            if not one.let_descriptor_go():
                with self._lock:
                    self._owners[one] = None

    def closed(self, owner: DescriptorOwner) -> None:
        """Note that a file has no descriptor any more."""
        with self._lock:
            self._owners.pop(owner, None)
