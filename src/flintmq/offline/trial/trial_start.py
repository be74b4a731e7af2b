"""Trying the next start of a store, without writing anything into its directory.

The start that is tried is the real one, on files whose changes are private.  So what it reports
is what a start does, not what somebody thinks that it does.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flintmq.errors import FlintError
from flintmq.offline.errors import StoreInUseError
from flintmq.offline.index_geometry import find_geometry
from flintmq.offline.layout import StoreLayout
from flintmq.offline.regions import Regions
from flintmq.offline.store_lock import refuse_running
from flintmq.offline.trial.private_files import PrivateFiles
from flintmq.store.clock import Clock
from flintmq.store.config import StoreConfig
from flintmq.store.files.interface import Files
from flintmq.store.files.local_files import LocalFiles

if TYPE_CHECKING:
    from flintmq.store.recovery.recovery_report import RecoveryReport


@dataclass(slots=True, kw_only=True)
class StartReport:
    """What the next start of a store would do."""

    root: Path
    refused: str = ""
    """Why there would be no start, empty if there is one."""
    recovery: RecoveryReport | None = None
    """What recovery would find and do; None without a start."""
    settings: dict[str, str] = field(default_factory=dict)
    """The settings that were detected or given."""

    @property
    def is_whole(self) -> bool:
        """Whether the store starts and serves every record that was ever acknowledged."""
        done = self.recovery
        return done is not None and not (
            done.stop_reason
            or done.damaged_range_count
            or done.records_set_aside
            or done.lost_ranges
        )


def start_config(
    layout: StoreLayout, settings: Mapping[str, str], *, with_index: bool
) -> StoreConfig:
    """Return the settings of a start: those given, and for the others what the files show."""
    detected = {
        "mappedFileSizeCommitLog": layout.log_file_size,
        "mappedFileSizeConsumeQueue": layout.queue_file_size,
        "messageIndexEnable": str(with_index).lower(),
        "enableMultiDispatch": "true",
        "enableLmq": str(layout.lmq).lower(),
    }
    if layout.log_directories != (layout.root / "commitlog",):
        detected["storePathCommitLog"] = ",".join(map(str, layout.log_directories))
    extensions = [file.size for found in layout.extensions.values() for file in found]
    if extensions:
        detected["enableConsumeQueueExt"] = "true"
        detected["mappedFileSizeConsumeQueueExt"] = max(extensions)
    with Regions(layout.files) as regions:
        geometry = find_geometry(layout, regions)
    if geometry is not None:
        detected["maxHashSlotNum"] = geometry.slots
        detected["maxIndexNum"] = geometry.entries
    properties = {key: str(value) for key, value in detected.items()} | dict(settings)
    return StoreConfig.from_properties(properties, root=layout.root)


def try_start(
    layout: StoreLayout,
    *,
    settings: Mapping[str, str] | None = None,
    with_index: bool = True,
    clock: Clock | None = None,
) -> StartReport:
    """Start a store on private files, stop it, and return what it did."""
    config = start_config(layout, settings or {}, with_index=with_index)
    return try_start_of(config, files=layout.files, clock=clock)


def try_start_of(
    config: StoreConfig, *, files: Files, clock: Clock | None = None, **options: Any
) -> StartReport:
    """Start the store of ``config`` on private files; ``options`` are those of a real start."""
    # All that a store can do: no other tool here needs it.
    from flintmq.store.message_store import MessageStore

    report = StartReport(root=config.root, settings=config.to_properties())
    private = files if isinstance(files, PrivateFiles) else PrivateFiles(files)
    try:
        if isinstance(files, LocalFiles):
            refuse_running(config.root)
        with _silence():
            store = MessageStore.open(
                config, files=private, clock=clock, background=False, **options
            )
            report.recovery = store.recovery_report
            store.close()
    except StoreInUseError:
        report.refused = "a broker runs in this directory"
    except FlintError as error:
        report.refused = str(error)
    return report


@contextmanager
def _silence() -> Iterator[None]:
    """Let the store not log what it does: nothing of it is done."""
    logger = logging.getLogger("flintmq.store")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
