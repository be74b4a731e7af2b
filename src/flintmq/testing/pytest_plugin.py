"""Pytest fixtures for users: a running broker, and a topic that no other test uses.

Nothing heavy is imported before a test asks for a fixture.
"""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flintmq.testing.embedded import EmbeddedCluster

_NAME_LENGTH_MAX: Final = 80


@pytest.fixture(scope="session")
def flintmq_cluster() -> Iterator[EmbeddedCluster]:
    """Yield a name server and a broker that run as long as the test session."""
    from flintmq.testing.embedded import EmbeddedCluster

    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture
def flintmq_topic(request: pytest.FixtureRequest) -> str:
    """Return the name of a topic that no other test uses."""
    name = re.sub(r"[^A-Za-z0-9_-]", "-", request.node.name)[:_NAME_LENGTH_MAX]
    return f"{name}-{uuid.uuid4().hex[:8]}"
