from collections.abc import Iterator

import pytest

from flintmq.testing import EmbeddedCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """A cluster of one broker, shared by the tests of a module: each has topics of its own."""
    with EmbeddedCluster() as running:
        yield running
