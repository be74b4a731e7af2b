"""What was found on the way, as complaints and as an exit code."""

from collections.abc import Iterator

import click

from flintmq.cli.exit_codes import EXIT_FINE, EXIT_PROBLEMS
from flintmq.cli.output.verify_text import finding_line
from flintmq.offline import Findings, Severity


def complaints(findings: Findings) -> Iterator[str]:
    """Yield findings as lines for stderr."""
    for finding in findings:
        yield f"flintmq: {finding_line(finding)}"
    missing = len(findings) - findings.shown.total()
    if missing > 0:
        yield f"flintmq: and {missing} more"


def complain(findings: Findings) -> None:
    """Tell findings on stderr."""
    for line in complaints(findings):
        click.echo(line, err=True)


def exit_code(findings: Findings) -> int:
    """Return the exit code of a command that has found this."""
    return EXIT_PROBLEMS if findings.total(Severity.PROBLEM) else EXIT_FINE
