"""What jobs leave out of the logs of stores, as far as no reader of a log meets it."""

from pathlib import Path

from flintmq.offline.layout import find_log
from flintmq.offline.set_aside_files import set_aside_logs
from flintmq.spark.errors import CorruptLogError
from flintmq.spark.jobs.damages import Damages, DamageTally, added
from flintmq.spark.options.store_options import OnCorrupt, ReadOptions
from flintmq.spark.stored.log_follower import LogFollower


def damages_behind(log: LogFollower, options: ReadOptions) -> Damages:
    """Return what is damaged behind the end of a log that was looked at, and what was set aside.

    No whole record follows, so a job that reads up to the end never meets it.

    Raises:
        CorruptLogError: there is damage, and the options say to fail then.
    """
    tally = DamageTally(str(log.directory))
    damage = log.damage_behind
    if damage is not None:
        if options.on_corrupt is OnCorrupt.FAIL:
            raise CorruptLogError(damage.path, damage.start, damage.end, damage.reason)
        tally.add(damage)
    return added([tally.damages(), set_aside_damages(log.directory)])


def set_aside_damages(directory: Path) -> Damages:
    """Return how much recovery has cut off the log of a store and set aside."""
    sizes = [file.size for cut in set_aside_logs(find_log(directory)) for file in cut.log_files]
    return Damages(set_aside_count=len(sizes), set_aside_size=sum(sizes))
