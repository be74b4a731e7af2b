"""What recovery has cut off a log and set aside, read like a log."""

import re
from dataclasses import replace
from typing import Final

from flintmq.offline.findings import Findings
from flintmq.offline.layout import DataFile, StoreLayout
from flintmq.store.recovery.set_aside import DIRECTORY

_CUT_NAME: Final = re.compile(r"([0-9]{20})(?:-[0-9]+)?\.cut")


def set_aside_logs(layout: StoreLayout) -> list[StoreLayout]:
    """Return for each file that was set aside a layout whose log is just that file.

    Its queues are empty: since the log was cut, other records may have got the same queue
    offsets, and nothing that the queues say is true of these.
    """
    directory = layout.root / DIRECTORY
    found = []
    for entry in layout.files.list(directory):
        name = _CUT_NAME.fullmatch(entry.name)
        if name is None or entry.is_directory or not entry.size:
            continue
        file = DataFile(int(name[1]), directory / entry.name, entry.size)
        found.append(
            replace(
                layout,
                log_directories=(directory,),
                log_files=[file],
                queues={},
                extensions={},
                index_files=[],
                findings=Findings(),
            )
        )
    return found
