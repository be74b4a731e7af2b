"""Changes: what is to become of something, whether it was done, and why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from flintmq.errors import FlintError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable


class ChangeOutcome(Enum):
    """How far a change has come."""

    PLANNED = "planned"
    UNCHANGED = "unchanged"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminChange:
    """One thing that is changed at one place.

    ``old`` is None where there was nothing before, and ``new`` where nothing is left.
    """

    target: str
    """The broker, the name server or the client at which it is changed."""
    subject: str
    old: Mapping[str, object] | None = None
    new: Mapping[str, object] | None = None
    outcome: ChangeOutcome = ChangeOutcome.PLANNED
    error: FlintError | None = None


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A change and how it is carried out; a map that ``apply`` returns is added to what is new.

    ``always`` says that it is carried out though old and new are alike: it has an effect besides.
    """

    change: AdminChange
    apply: Callable[[], Awaitable[object]]
    always: bool = field(default=False, kw_only=True)


async def carry_out(plans: Iterable[PlannedChange], *, dry_run: bool) -> list[AdminChange]:
    """Carry changes out, one after the other, and return how each went; one failure stops none.

    With ``dry_run`` nothing is done.
    """
    done = []
    for plan in plans:
        change = plan.change
        if not plan.always and change.old == change.new:
            done.append(replace(change, outcome=ChangeOutcome.UNCHANGED))
        elif dry_run:
            done.append(change)
        else:
            done.append(await _apply(plan))
    return done


async def _apply(plan: PlannedChange) -> AdminChange:
    change = plan.change
    try:
        told = await plan.apply()
    except FlintError as error:
        return replace(change, outcome=ChangeOutcome.FAILED, error=error)
    new = {**(change.new or {}), **told} if isinstance(told, Mapping) else change.new
    return replace(change, outcome=ChangeOutcome.DONE, new=new)
