"""For our tests and for users: a broker inside a test, a clock, bad networks, lossy files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flintmq.testing.clock import ManualClock
from flintmq.testing.simulated_files import (
    ROOT,
    Call,
    Fault,
    SimulatedCrash,
    SimulatedFiles,
)
from flintmq.testing.simulated_region import SimulatedRegion

if TYPE_CHECKING:
    from flintmq.testing.embedded import AsyncEmbeddedCluster, EmbeddedCluster
    from flintmq.testing.tcp_proxy import AsyncTcpProxy, TcpProxy

__all__ = [
    "ROOT",
    "AsyncEmbeddedCluster",
    "AsyncTcpProxy",
    "Call",
    "EmbeddedCluster",
    "Fault",
    "ManualClock",
    "SimulatedCrash",
    "SimulatedFiles",
    "SimulatedRegion",
    "TcpProxy",
]


def __getattr__(name: str) -> Any:
    # Who only wants a clock need not load a broker.
    if name in ("AsyncEmbeddedCluster", "EmbeddedCluster"):
        from flintmq.testing import embedded

        return getattr(embedded, name)
    if name in ("AsyncTcpProxy", "TcpProxy"):
        from flintmq.testing import tcp_proxy

        return getattr(tcp_proxy, name)
    raise AttributeError(name)
