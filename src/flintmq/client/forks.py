"""Forks of a process: what was open before belongs to the parent.

Servers that load a program and then fork their workers (gunicorn with ``--preload``, Celery), and
`multiprocessing` where it forks, copy open clients into children that have neither their threads
nor connections of their own.  Two processes that write to one connection would mix their requests.
"""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet


class LeftByForks(Protocol):
    """An object that has to notice that it was copied into another process."""

    def forked(self) -> tuple[object, ...]:
        """Learn that this process is a fork; return what belongs to the parent and must stay."""
        ...


_objects: Final[WeakSet[LeftByForks]] = WeakSet()
_left: Final[list[object]] = []
"""What belongs to the parent.  It is never collected here: its end would close what both share."""


def leave_behind_in_forks(one: LeftByForks) -> None:
    """Have an object told in every fork of this process."""
    _objects.add(one)


def _after_fork() -> None:
    for one in list(_objects):
        _left.extend(one.forked())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
