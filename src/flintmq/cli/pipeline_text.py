"""Lines that the texts of several jobs have in common."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from flintmq.cli.text import plural, printable, size_text

if TYPE_CHECKING:
    from flintmq.spark.jobs.stores import Damages


def damage_lines(damages: "Damages") -> Iterator[str]:
    """Yield what was left out because it is damaged; nothing if nothing was."""
    if not damages.count:
        return
    yield f"{plural(damages.count, 'damaged range')} left out, {size_text(damages.size)}:"
    for path, start, size, reason in damages.ranges:
        yield f"  {printable(path)} at {start}, {size} bytes: {printable(reason)}"
    if damages.count > len(damages.ranges):
        yield f"  and {damages.count - len(damages.ranges)} more"
