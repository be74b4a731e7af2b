"""Changes: what is to become of something, whether it was done, and why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from flintmq.errors import FlintError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable


_Place = TypeVar("_Place")


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
    ``fault`` says why it could not even be planned; then nothing is carried out.
    """

    change: AdminChange
    apply: Callable[[], Awaitable[object]]
    always: bool = field(default=False, kw_only=True)
    fault: FlintError | None = field(default=None, kw_only=True)


async def plan_each(
    places: Iterable[_Place],
    subject: str,
    plan: Callable[[_Place], Awaitable[PlannedChange | None]],
) -> list[PlannedChange]:
    """Plan a change at each of several places; a place that fails keeps none from being changed.

    None stands for a place where there is nothing to change.
    """
    plans = []
    for place in places:
        try:
            planned = await plan(place)
        except FlintError as error:
            target = getattr(place, "label", f"name server {place}")
            planned = _unplanned(AdminChange(target=target, subject=subject), error)
        if planned is not None:
            plans.append(planned)
    return plans


def _unplanned(change: AdminChange, error: FlintError) -> PlannedChange:
    async def fail() -> None:
        raise error

    return PlannedChange(change, fail, fault=error)


async def carry_out(plans: Iterable[PlannedChange], *, dry_run: bool) -> list[AdminChange]:
    """Carry changes out, one after the other, and return how each went; one failure stops none.

    With ``dry_run`` nothing is done.
    """
    done = []
    for plan in plans:
        change = plan.change
        if plan.fault is not None:
            done.append(replace(change, outcome=ChangeOutcome.FAILED, error=plan.fault))
        elif not plan.always and change.old == change.new:
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
