"""Single keywords of a call, sorted out to the settings objects that they belong to.

Producers and consumers take whole settings objects, single keywords, or both.  The keywords are
the fields of the settings objects, so names and defaults are written there and nowhere else.
"""

from __future__ import annotations

import difflib
import inspect
from dataclasses import fields, replace
from typing import TYPE_CHECKING, TypeVar

from flintmq.client.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from _typeshed import DataclassInstance

_Settings = TypeVar("_Settings", bound="DataclassInstance")


class KeywordSorter:
    """Fills settings objects from the keywords that were given to ``owner``.

    A keyword that is a field of none of ``kinds`` raises UsageError, which names the nearest
    keyword that ``owner`` knows.
    """

    def __init__(
        self, owner: type, keywords: Mapping[str, object], *kinds: type[DataclassInstance]
    ) -> None:
        self._keywords = keywords
        known = [field.name for kind in kinds for field in fields(kind)]
        for name in keywords:
            if name not in known:
                raise UsageError(_unknown(owner, name, known))

    def _own(self, kind: type[DataclassInstance]) -> dict[str, object]:
        names = [field.name for field in fields(kind)]
        return {name: self._keywords[name] for name in names if name in self._keywords}

    def fill(self, kind: type[_Settings], given: _Settings | None) -> _Settings:
        """Return settings of a kind: those given, with single keywords put over them."""
        if given is None:
            return kind(**self._own(kind))
        if not isinstance(given, kind):
            raise UsageError(f"a {kind.__name__} is expected, not a {type(given).__name__}")
        return replace(given, **self._own(kind))

    def fill_if_given(self, kind: type[_Settings], given: _Settings | None) -> _Settings | None:
        """Return what `fill` returns; None if neither settings nor single keywords were given."""
        return None if given is None and not self._own(kind) else self.fill(kind, given)


def _unknown(owner: type, name: str, known: Iterable[str]) -> str:
    named = [
        parameter.name
        for parameter in inspect.signature(owner).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    return f"unknown keyword {name!r}{nearest_hint(name, [*named, *known])}"


def nearest_hint(name: str, known: Iterable[str]) -> str:
    """Return the question whether the nearest known name was meant; nothing if none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
