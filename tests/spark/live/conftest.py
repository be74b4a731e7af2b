import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from flintmq.testing import EmbeddedCluster

if TYPE_CHECKING:
    from tests.kits.spark.fake_cluster import VirtualTime


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """A cluster of one broker, shared by the tests of a module: each has topics of its own."""
    with EmbeddedCluster() as running:
        yield running


@pytest.fixture(scope="module")
def runner() -> "Iterator[VirtualTime]":
    """What runs coroutines of tests without waiting."""
    from tests.kits.spark.fake_cluster import VirtualTime

    found = VirtualTime()
    yield found
    found.close()


@pytest.fixture(autouse=True)
def ends_sessions() -> Iterator[None]:
    """Fail if a test leaves the client of a reader or a job open."""
    before = set(threading.enumerate())
    yield
    left = [one.name for one in threading.enumerate() if one not in before]
    assert "flintmq-client" not in left
