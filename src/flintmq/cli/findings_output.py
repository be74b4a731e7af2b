"""What was found on the way, as complaints and as an exit code."""

import click

from flintmq.cli.exit_codes import EXIT_FINE, EXIT_PROBLEMS
from flintmq.cli.verify_text import finding_line
from flintmq.offline import Findings, Severity


def complain(findings: Findings) -> None:
    """Tell findings on stderr."""
    for finding in findings:
        click.echo(f"flintmq: {finding_line(finding)}", err=True)
    missing = len(findings) - findings.shown.total()
    if missing > 0:
        click.echo(f"flintmq: and {missing} more", err=True)


def exit_code(findings: Findings) -> int:
    """Return the exit code of a command that has found this."""
    return EXIT_PROBLEMS if findings.total(Severity.PROBLEM) else EXIT_FINE
