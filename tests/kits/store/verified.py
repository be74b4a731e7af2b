"""What ``store verify`` says of a store on simulated files, be it open or closed."""

from collections.abc import Collection

from flintmq.format.delay_levels import DelayLevels
from flintmq.offline.findings import Finding, Kind, Severity
from flintmq.offline.layout import QueueKey, SizeOptions, StoreLayout, find_store
from flintmq.offline.verify.store_verify import verify
from flintmq.testing import ROOT, SimulatedFiles
from tests.kits.store.store_workload import Variant


def layout_of(variant: Variant, files: SimulatedFiles) -> StoreLayout:
    """Return where the files of a store are."""
    config = variant.config
    sizes = SizeOptions(
        log_file_size=config.commit_log_file_size,
        queue_file_size=config.effective_consume_queue_file_size,
        hash_slots=config.hash_slot_count,
        index_entries=config.index_entry_count,
    )
    directories = (*config.commit_log_paths, *config.read_only_commit_log_paths)
    layout = find_store(ROOT, log_directories=directories, sizes=sizes, files=files)
    layout.lmq = config.enable_lmq
    return layout


def problems_of(
    variant: Variant, files: SimulatedFiles, *, emptied: Collection[QueueKey] = ()
) -> list[Finding]:
    """Return what is wrong with a store, but for the files of queues that were removed."""
    levels = DelayLevels.parse(variant.config.delay_levels)
    return problems_in(layout_of(variant, files), levels, emptied=emptied)


def problems_in(
    layout: StoreLayout, delay_levels: DelayLevels, *, emptied: Collection[QueueKey] = ()
) -> list[Finding]:
    """Return what is wrong with a store, but for the files of queues that were removed.

    A store alone does not tell whether a queue was removed or lost, unless its topic is gone too.
    """
    report = verify(layout, delay_levels=delay_levels)
    missing = {f"consumequeue/{topic}/{queue_id}" for topic, queue_id in emptied}
    return [
        one
        for one in report.findings
        if one.severity is Severity.PROBLEM
        and not (one.kind is Kind.QUEUE_MISSING and one.file in missing)
    ]
