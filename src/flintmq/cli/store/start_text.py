"""What the next start of a store would do, as text."""

from collections.abc import Iterator

from flintmq.cli.output.text import plural, printable, size_text
from flintmq.offline import StartReport


def start_lines(report: StartReport) -> Iterator[str]:
    """Yield the lines of the report, the verdict last."""
    yield f"store     {printable(str(report.root))}"
    done = report.recovery
    if done is None:
        yield f"refused   {printable(report.refused)}"
        return
    yield f"stopped   {'cleanly' if done.clean_exit else 'by a kill, a crash or a power failure'}"
    scanned = plural(done.records_scanned, "record")
    yield f"start     at {done.scan_start} ({done.start_reason}), {scanned}"
    yield f"log       offsets {done.log_start} to {done.log_end} afterwards"
    if done.damaged_range_count:
        yield f"damage    {done.stepped_over}"
        for damaged in done.damaged_ranges:
            yield f"          {damaged.start} to {damaged.end}: {printable(damaged.reason)}"
    if done.stop_reason:
        yield f"cut       at {done.log_end}: {printable(done.stop_reason)}"
    for name in done.log_files_removed:
        yield f"          file {name} removed"
    if done.records_set_aside:
        yield (
            f"set aside {plural(done.records_set_aside, 'record')}, "
            f"{size_text(done.bytes_set_aside)}: {printable(done.set_aside_reason)}"
        )
        for name in done.set_aside:
            yield f"          {printable(name)}"
    yield f"queues    {plural(done.units_cut, 'unit')} cut, {done.units_rebuilt} made again"
    for name in done.queues_filled:
        yield f"          {printable(name)} filled from {done.fill_start}"
    yield (
        f"index     {plural(done.index_files_dropped, 'file')} dropped, "
        f"{done.index_entries_rebuilt} entries made again"
    )
    for text in done.lost_ranges:
        yield f"lost      {printable(text)}"
    for text in done.problems:
        yield f"problem   {printable(text)}"
    if done.problem_count > len(done.problems):
        yield f"          and {done.problem_count - len(done.problems)} more"
    yield ""
    yield "the store starts whole" if report.is_whole else "the store starts without all of its log"
