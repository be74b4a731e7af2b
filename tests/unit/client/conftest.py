"""Tests of the client leave nothing behind: no thread, task, descriptor or directory."""

from collections.abc import Iterator

import pytest

from flintmq.client.loop_thread import LoopThread
from tests.kits.leftovers import nothing_left


@pytest.fixture(scope="session")
def first_loop() -> None:
    """Have uvloop open the pipe that it keeps for the whole process."""
    LoopThread().close()


@pytest.fixture(autouse=True)
def leaves_nothing(tmp_path_factory: pytest.TempPathFactory, first_loop: None) -> Iterator[None]:
    with nothing_left(tmp_path_factory.mktemp("temporary")):
        yield
