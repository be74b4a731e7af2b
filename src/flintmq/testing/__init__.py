"""For our tests and for users: a broker inside a test, a clock to turn, files that lose bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flintmq.testing.clock import ManualClock
from flintmq.testing.simulated_files import (
    ROOT,
    Call,
    Fault,
    SimulatedCrash,
    SimulatedFiles,
    SimulatedRegion,
)

if TYPE_CHECKING:
    from flintmq.testing.embedded import AsyncEmbeddedCluster, EmbeddedCluster

__all__ = [
    "ROOT",
    "AsyncEmbeddedCluster",
    "Call",
    "EmbeddedCluster",
    "Fault",
    "ManualClock",
    "SimulatedCrash",
    "SimulatedFiles",
    "SimulatedRegion",
]


def __getattr__(name: str) -> Any:
    # Who only wants a clock need not load a broker.
    if name in ("AsyncEmbeddedCluster", "EmbeddedCluster"):
        from flintmq.testing import embedded

        return getattr(embedded, name)
    raise AttributeError(name)
