"""The choice between the two encoders of append groups: Python, and machine code once loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.kernels.background_load import LoadOnDemand
from flintmq.store.append_group.python_encoder import PythonEncoder
from flintmq.store.append_group.sends import NotPlainError

if TYPE_CHECKING:
    from flintmq.store.append_group.sends import AppendGroup, AppendPosition, GroupEncoder, Sends

COMPILED_COUNT_MIN: Final = 8
"""Sends from which on machine code is worth its call; a batch is worth it by itself."""

COMPILED_PROGRAM: Final = (
    "from flintmq.store.append_group.compiled_encoder import ready_encoder; ready_encoder()"
)
"""Loads all machine code of the encoder."""


def load_compiled_encoder() -> GroupEncoder:
    """Load machine code; it brings numpy and numba with it.

    Raises:
        ImportError: they are not installed.
    """
    from flintmq.store.append_group.compiled_encoder import ready_encoder

    return ready_encoder()


class EncoderChoice:
    """Encodes append groups by machine code where that is loaded and can, in Python elsewhere.

    Machine code is loaded in the background when it has been asked for often enough.
    """

    def __init__(
        self, *, machine_code: bool, loader: LoadOnDemand[GroupEncoder] | None = None
    ) -> None:
        self._python = PythonEncoder()
        self._loader = (
            loader or LoadOnDemand(load_compiled_encoder, program=COMPILED_PROGRAM)
            if machine_code
            else None
        )

    def encode(self, sends: Sends, position: AppendPosition) -> AppendGroup:
        """Return the append group of these sends; see `GroupEncoder`."""
        if self._loader is not None and (
            len(sends.targets) >= COMPILED_COUNT_MIN or sends.targets[0].is_batch
        ):
            compiled = self._loader.get()
            if compiled is not None:
                try:
                    return compiled.encode(sends, position)
                except NotPlainError:
                    pass  # Python knows more, and says which send is special.
        return self._python.encode(sends, position)
