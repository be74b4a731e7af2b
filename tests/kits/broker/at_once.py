"""Machine code that is there when it is asked for first, in place of what is loaded beside."""

import functools
from collections.abc import Callable


class AtOnce:
    """Loads when it is asked for first, and waits for that."""

    def __init__(
        self, load: Callable[[], object], *, ask_count: int = 0, program: str = ""
    ) -> None:
        self.get = functools.cache(load)

    @property
    def loaded(self) -> object:
        return self.get()
