"""Loading of the machine code for sends and their answers; it brings numpy and numba with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.broker.sending.compiled_answers import CompiledAnswers
    from flintmq.broker.sending.compiled_sends import CompiledSends


def load_compiled_answers() -> CompiledAnswers:
    """Load machine code for answers, where the store has loaded its own."""
    from flintmq.broker.sending.compiled_answers import CompiledAnswers

    return CompiledAnswers()


def load_compiled_sends() -> CompiledSends:
    """Load machine code for sends from frame to answer."""
    from flintmq.broker.sending.compiled_sends import CompiledSends

    return CompiledSends()
