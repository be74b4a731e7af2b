"""For our tests and for users: a clock to turn, and files that lose what was not synced."""

from flintmq.testing.clock import ManualClock
from flintmq.testing.simulated_files import (
    ROOT,
    Call,
    Fault,
    SimulatedCrash,
    SimulatedFiles,
    SimulatedRegion,
)

__all__ = [
    "ROOT",
    "Call",
    "Fault",
    "ManualClock",
    "SimulatedCrash",
    "SimulatedFiles",
    "SimulatedRegion",
]
