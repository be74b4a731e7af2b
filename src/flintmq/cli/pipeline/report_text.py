"""Lines that the texts of several jobs have in common."""

from collections.abc import Iterator

from flintmq.cli.output.text import plural, printable, size_text
from flintmq.spark.jobs.damages import Damages


def damage_lines(damages: Damages) -> Iterator[str]:
    """Yield what was left out because it is damaged or was set aside; nothing if nothing was."""
    if damages.set_aside_count:
        yield (
            f"note: {plural(damages.set_aside_count, 'file')} of "
            f"{size_text(damages.set_aside_size)} in recovered/ not read: recovery has set "
            "aside what it cut off the log"
        )
    if damages.body_count:
        yield f"bodies of {plural(damages.body_count, 'record')} left out: cannot be decompressed"
    if not damages.count:
        return
    if damages.missing_count:
        yield f"at least {plural(damages.missing_count, 'message')} missing:"
    else:
        yield f"{plural(damages.count, 'damaged range')} left out, {size_text(damages.size)}:"
    for path, start, size, reason in damages.ranges:
        size_told = "" if damages.missing_count else f", {size} bytes"
        yield f"  {printable(path)} at {start}{size_told}: {printable(reason)}"
    if damages.count > len(damages.ranges):
        yield f"  and {damages.count - len(damages.ranges)} more"
