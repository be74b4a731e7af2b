"""What a salvage has saved, as text."""

from collections.abc import Iterator

from flintmq.cli.output.text import plural, printable, size_text
from flintmq.offline import SalvageReport


def salvage_lines(report: SalvageReport) -> Iterator[str]:
    """Yield the lines of the report."""
    aside = f", {report.set_aside_count} of them set aside before" if report.set_aside_count else ""
    yield f"saved     {plural(report.record_count, 'record')}{aside}"
    yield (
        f"left out  {plural(report.damage_count, 'damaged range')}, "
        f"{size_text(report.damage_bytes)}; {report.checksum_count} with a wrong checksum, "
        f"{report.duplicate_count} that were there twice"
    )
    yield (
        f"made      {plural(report.unit_count, 'unit')} in {plural(report.queue_count, 'queue')}, "
        f"{report.index_entry_count} index entries in {plural(report.index_file_count, 'file')}, "
        f"{plural(report.state_file_count, 'state file')}"
    )
    for name, offset in report.renumbered.items():
        yield f"moved     {printable(name)}: other queue offsets from {offset} on"
    if report.renumbered_count > len(report.renumbered):
        yield f"          and {report.renumbered_count - len(report.renumbered)} more queues"
    yield f"store     {printable(str(report.output))}"
