import threading
from collections.abc import Iterator

import pytest

from flintmq.testing import EmbeddedCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """A cluster of one broker, shared by the tests of a module: each has topics of its own."""
    with EmbeddedCluster() as running:
        yield running


@pytest.fixture(autouse=True)
def ends_sessions() -> Iterator[None]:
    """Fail if a test leaves the client of a reader or a job open."""
    before = set(threading.enumerate())
    yield
    left = [one.name for one in threading.enumerate() if one not in before]
    assert "flintmq-client" not in left
