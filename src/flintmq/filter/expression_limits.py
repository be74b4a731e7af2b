"""How large an SQL92 expression may be: each message costs as many steps as it has operands."""

from typing import Final

LENGTH_MAX: Final = 8192
"""Characters of an expression."""
OPERAND_COUNT_MAX: Final = 1000
"""Operands of all operations of an expression; each message costs as many steps."""
DEPTH_MAX: Final = 100
"""Operations inside each other; evaluating goes as deep."""
