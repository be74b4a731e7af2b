"""What the exit code of a command says; click itself uses 2 for wrong usage."""

from typing import Final

EXIT_FINE: Final = 0
EXIT_PROBLEMS: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREADABLE: Final = 3
EXIT_NOT_FOUND: Final = 3
"""Of commands that ask a cluster: what was named is not there."""
EXIT_DENIED: Final = 4
"""The account may not do this."""
EXIT_PARTLY: Final = 5
"""Some of it was done, and some of it was not."""
EXIT_INTERRUPTED: Final = 130
