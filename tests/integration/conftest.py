"""What holds for every test with real processes: nothing holds the loop of a server."""

from collections.abc import Iterator
from typing import Final

import pytest

from tests.kits.processes.serve_process import take_long_turns

LONG_TURN_MS: Final = 1000


@pytest.fixture(autouse=True)
def _no_turn_of_a_loop_takes_a_second() -> Iterator[None]:
    """Fail a test during which a broker had a turn of its loop that long."""
    take_long_turns(LONG_TURN_MS)
    yield
    assert take_long_turns(LONG_TURN_MS) == []
