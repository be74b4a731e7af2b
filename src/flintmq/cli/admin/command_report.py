"""What a command has found or done, before it is written down in one of the output forms."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from flintmq.admin.admin_errors import is_absence, is_denial
from flintmq.admin.changes import AdminChange, ChangeOutcome
from flintmq.cli.contexts.context_file import NoContextError
from flintmq.cli.exit_codes import (
    EXIT_DENIED,
    EXIT_FINE,
    EXIT_NOT_FOUND,
    EXIT_PARTLY,
    EXIT_PROBLEMS,
    EXIT_USAGE,
)
from flintmq.cli.output.plain_values import plain
from flintmq.client.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from flintmq.client.searching.broker_places import Answers, BrokerPlace
    from flintmq.errors import FlintError

_Found = TypeVar("_Found")


@dataclass(slots=True, kw_only=True)
class CommandReport:
    """The answer of a command: rows, a summary of them, and what could not be asked.

    ``columns`` are the members that a table shows, all of them unless given; other forms always
    have all.  ``table_rows`` stand for the rows where a form has no room for nested values.
    """

    rows: Sequence[object] = ()
    columns: Sequence[str] | None = None
    table_rows: Sequence[Mapping[str, object]] | None = None
    summary: Mapping[str, object] = field(default_factory=dict)
    failures: Sequence[tuple[str, FlintError]] = ()
    exit_code: int | None = None
    """What the command ends with, unless it follows from the rows and failures."""

    @property
    def code(self) -> int:
        """The exit code."""
        if self.exit_code is not None:
            return self.exit_code
        errors = [error for _, error in self.failures]
        changes = [one for one in self.rows if isinstance(one, AdminChange)]
        errors += [one.error for one in changes if one.error is not None]
        if not errors:
            return EXIT_FINE
        done = [one for one in self.rows if not isinstance(one, AdminChange)]
        done += [one for one in changes if one.outcome is not ChangeOutcome.FAILED]
        return EXIT_PARTLY if done else exit_code_of(errors[0])

    def plain_rows(self) -> list[dict[str, object]]:
        """Return the rows as objects."""
        rows = []
        for one in self.rows:
            row = plain(one)
            assert isinstance(row, dict), one
            rows.append(row)
        return rows


def exit_code_of(error: BaseException) -> int:
    """Return what a command ends with that failed for this reason."""
    if is_denial(error):
        return EXIT_DENIED
    if is_absence(error) or isinstance(error, NoContextError):
        return EXIT_NOT_FOUND
    return EXIT_USAGE if isinstance(error, UsageError) else EXIT_PROBLEMS


def change_report(changes: Sequence[AdminChange], **summary: object) -> CommandReport:
    """Return changes as a report; a table shows only what differs between old and new."""
    rows = [
        {
            "target": one.target,
            "subject": one.subject,
            "change": change_text(one),
            "outcome": one.outcome.value,
            **({"error": str(one.error)} if one.error is not None else {}),
        }
        for one in changes
    ]
    return CommandReport(rows=changes, table_rows=rows, summary=summary)


def change_text(change: AdminChange) -> str:
    """Return what becomes of something: ``perm 6 -> 4``."""
    old, new = change.old, change.new
    if old is None and new is None:
        return "done on order"
    if new is None:
        return f"{_members(old or {})} -> nothing"
    if old is None:
        return f"nothing -> {_members(new)}"
    differing = [name for name in new if old.get(name) != new[name]]
    return ", ".join(f"{name} {old.get(name)} -> {new[name]}" for name in differing) or "the same"


def _members(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def answers_report(
    answers: Answers[BrokerPlace, _Found],
    *,
    columns: Sequence[str] | None = None,
    table_rows: Iterable[Mapping[str, object]] | None = None,
) -> CommandReport:
    """Return what brokers have answered, and the failures of those that have not."""
    return CommandReport(
        rows=[one for _, one in answers.found],
        columns=columns,
        table_rows=None if table_rows is None else list(table_rows),
        failures=[(place.label, error) for place, error in answers.failures],
    )
