"""A driver that archives live topics and waits to be killed at one point of its run."""

import json
import signal
import sys
from pathlib import Path
from typing import Any

from flintmq.spark.jobs.archive import archive_manifest
from flintmq.spark.jobs.archive.archive_manifest import ArchiveDirectory
from flintmq.spark.jobs.archive.archive_writer import PartitionedWriter
from flintmq.spark.jobs.archive.live_archive import archive_topics
from tests.kits.spark.inline_spark import inline_spark


def wait_here(*_: object) -> None:
    """Tell that the point is reached."""
    sys.stdout.write("here\n")
    sys.stdout.flush()
    signal.pause()


def stop_at(point: str) -> None:
    """Have a run wait before its files are closed, before they count, or just before the end."""
    write_json = archive_manifest.write_json

    def wait_before_the_last(path: Path, value: Any) -> None:
        if path.name == "current.json" and value["runs"]:
            wait_here()
        write_json(path, value)

    match point:
        case "task":
            setattr(PartitionedWriter, "_closed", wait_here)  # noqa: B010 - it is none of a type's
        case "publish":
            setattr(ArchiveDirectory, "publish", wait_here)  # noqa: B010 - as above
        case "current":
            archive_manifest.write_json = wait_before_the_last


if __name__ == "__main__":
    stop_at(sys.argv[3])
    archive_topics(inline_spark(), json.loads(sys.argv[1]), sys.argv[2])
