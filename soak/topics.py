"""The topics of a run, and who follows them."""

from typing import Final

PLAIN: Final = "soak-plain"
DELAYED: Final = "soak-delayed"
DELETED: Final = "soak-deleted"
"""It is deleted and made anew again and again."""

QUEUE_COUNTS: Final = {PLAIN: 4, DELAYED: 2, DELETED: 2}
OURS, JAVA = "ours", "java"
FOLLOWED: Final = (PLAIN, DELAYED)
"""What push consumers follow; the other one is only read at the end."""
