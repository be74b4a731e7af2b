"""``flintmq pipeline``: the heavy work on store directories, in parallel on Spark."""

import click

from flintmq.cli.pipeline.archive_commands import (
    archive_command,
    check_archive_command,
    restore_command,
)
from flintmq.cli.pipeline.check_commands import rebuild_command, verify_command
from flintmq.cli.pipeline.copy_command import copy_command
from flintmq.cli.pipeline.diff_command import diff_command
from flintmq.cli.pipeline.query_command import query_command
from flintmq.cli.pipeline.replay_command import replay_command
from flintmq.cli.pipeline.stats_command import stats_command
from flintmq.cli.pipeline.stream_command import stream_command

_COMMANDS = (
    archive_command,
    check_archive_command,
    copy_command,
    diff_command,
    query_command,
    rebuild_command,
    replay_command,
    restore_command,
    stats_command,
    stream_command,
    verify_command,
)


@click.group()
def pipeline() -> None:
    """Verify, rebuild, archive, query, measure and compare stores, in parallel on Spark.

    DIR is a store directory of FlintMQ or of a RocketMQ broker, or a pattern such as
    '/data/*/store'.  A broker may be running there.  The exit code is 0 when all is well, 1 when
    problems or differences were found, 2 for wrong usage and 3 when a job is not possible: DIR is
    no store, or there is no Java 17 to run Spark.
    """


for _command in _COMMANDS:
    pipeline.add_command(_command)
