"""Loading of the machine code for contiguous reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.kernels.background_load import LoadOnDemand

if TYPE_CHECKING:
    from flintmq.store.reading.compiled_read import CompiledRead

COMPILED_PROGRAM: Final = (
    "from flintmq.store.reading.compiled_read import CompiledRead; CompiledRead()"
)
"""Loads all machine code of reads."""


def load_compiled_read() -> CompiledRead:
    """Load machine code for reads; it brings numpy and numba with it.

    Raises:
        ImportError: they are not installed.
    """
    from flintmq.store.reading.compiled_read import CompiledRead

    return CompiledRead()


def read_loader(*, machine_code: bool) -> LoadOnDemand[CompiledRead]:
    """Return what loads machine code for reads when many were asked for, or never."""
    if not machine_code:
        return LoadOnDemand(load_compiled_read, ask_count=0)
    return LoadOnDemand(load_compiled_read, program=COMPILED_PROGRAM)
