"""A server that is ready lets no thread and no garbage collector hold its loop for long."""

import gc
import sys
from collections.abc import Iterator

import pytest

from flintmq.cli.servers.running import COLLECT_EVERY, SWITCH_INTERVAL_S, announce
from flintmq.kernels import background_load

OBJECTS_MAX = 20_000
"""Objects that the garbage collector may look at in one go: some milliseconds."""


@pytest.fixture
def interpreter() -> Iterator[None]:
    """Leave the settings of the interpreter as they were found."""
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(background_load, "_freezes", False)
        yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("interpreter")
def test_a_ready_server_has_short_turns_of_threads_and_small_collections(
    capsys: pytest.CaptureFixture[str],
) -> None:
    announce("ready")
    assert capsys.readouterr().out == "ready\n"
    assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)
    assert SWITCH_INTERVAL_S <= 0.001
    assert gc.get_freeze_count() > 0
    youngest, times, _ = gc.get_threshold()
    assert (youngest, times) == COLLECT_EVERY[:2]
    assert youngest * (times + 1) <= OBJECTS_MAX
