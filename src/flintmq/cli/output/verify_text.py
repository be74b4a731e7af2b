"""The report of a verification as text."""

from collections.abc import Iterator

from flintmq.cli.output.text import plural, printable, size_text
from flintmq.offline import Finding, Findings, Severity, VerifyReport

_TITLES = {Severity.PROBLEM: "problem", Severity.NOTE: "note"}


def verify_lines(report: VerifyReport) -> Iterator[str]:
    """Yield the lines of the report, the verdict last."""
    yield f"store    {printable(str(report.root))}"
    yield (
        f"log      {plural(report.record_count, 'record')}, {size_text(report.record_bytes)}, in "
        f"{plural(report.log_file_count, 'file')}, offsets {report.log_start} to {report.log_end}"
    )
    yield f"queues   {plural(report.unit_count, 'unit')} in {plural(report.queue_count, 'queue')}"
    if report.index_checked:
        entries = report.index_entry_count
        files = plural(report.index_file_count, "file")
        yield f"index    {entries} {'entry' if entries == 1 else 'entries'} in {files}"
    else:
        yield "index    not checked"
    yield f"state    {plural(report.state_file_count, 'file')}"
    if report.unclean:
        yield "abort    present: a broker runs here, or was killed"
    if report.damage_count:
        yield ""
        ranges = plural(report.damage_count, "damaged range")
        yield f"{ranges} of the log, {size_text(report.damage_bytes)}:"
        for damage in report.damages:
            yield f"  {damage.start} to {damage.end}: {printable(damage.reason)}"
        if len(report.damages) < report.damage_count:
            yield f"  and {report.damage_count - len(report.damages)} more"
    for severity in Severity:
        yield from finding_lines(report.findings, severity)
    yield ""
    yield _verdict(report)


def finding_lines(findings: Findings, severity: Severity) -> Iterator[str]:
    """Yield what was found of one severity, and how much of it is not shown."""
    total = findings.total(severity)
    if not total:
        return
    yield ""
    yield f"{plural(total, _TITLES[severity])}:"
    for finding in findings.of(severity):
        yield f"  {finding_line(finding)}"
    for (found, kind), count in findings.counts.items():
        if found is severity and findings.shown[found, kind] < count:
            yield f"  {kind.value}: {count} in all"


def finding_line(finding: Finding) -> str:
    """Return one finding on one line."""
    where = printable(finding.file)
    at = "" if finding.offset is None else f" at {finding.offset}"
    return f"{finding.kind.value}: {where}{at}: {printable(finding.reason)}"


def _verdict(report: VerifyReport) -> str:
    if report.is_sound:
        notes = f" ({plural(report.note_count, 'note')})" if report.note_count else ""
        return f"sound{notes}"
    return f"{plural(report.problem_count, 'problem')} found"
