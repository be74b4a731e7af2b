"""Loading of the machine code for pulls; it brings numpy and numba with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flintmq.broker.pulling.compiled_pulls import CompiledPulls

COMPILED_PROGRAM: Final = (
    "from flintmq.broker.pulling.compiled_pulls import CompiledPulls; CompiledPulls()"
)
"""Loads all machine code of pulls."""


def load_compiled_pulls() -> CompiledPulls:
    """Load machine code for pulls; ImportError where numba is not installed."""
    from flintmq.broker.pulling.compiled_pulls import CompiledPulls

    return CompiledPulls()
