"""What the exit code of a command says; click itself uses 2 for wrong usage."""

from typing import Final

EXIT_FINE: Final = 0
EXIT_PROBLEMS: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREADABLE: Final = 3
EXIT_INTERRUPTED: Final = 130
