"""Which differences of a replayed conversation are meant to be."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.kits.golden.replaying import Difference


@dataclass(frozen=True, slots=True)
class Allowed:
    """Differences that are meant to be."""

    conversation: str
    code: int
    path: str
    reason: str

    def covers(self, found: Difference) -> bool:
        return (
            found.code == self.code
            and re.fullmatch(self.conversation, found.conversation) is not None
            and re.fullmatch(self.path, found.path) is not None
        )


def unexpected(found: Iterable[Difference], rules: Sequence[Allowed]) -> list[str]:
    """Return the differences that no rule covers."""
    return [str(one) for one in found if not any(rule.covers(one) for rule in rules)]
