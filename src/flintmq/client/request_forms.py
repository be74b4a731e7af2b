"""Requests that differ in a few fields only: their header is one text with gaps.

This is for clients that write JSON and sign nothing (`ClientInstance.has_repeating_headers`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from flintmq.format.wire.command import Command, encode_header
from flintmq.format.wire.frame import FRAME_SIZE_MAX, encode_json_prefix
from flintmq.remoting import EncodedRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_KindT = TypeVar("_KindT")
_T = TypeVar("_T")

KNOWN_COUNT_MAX: Final = 4096
"""Kinds of requests that a table remembers; one more, and the table begins anew."""


def remember(table: dict[_KindT, _T], kind: _KindT, known: _T) -> _T:
    """Put what repeats in requests of a kind into a table, and return it."""
    if len(table) >= KNOWN_COUNT_MAX:
        table.clear()
    table[kind] = known
    return known


class RequestForm(NamedTuple):
    """The header of requests of one kind; its gaps are filled in their order."""

    code: int
    header: bytes
    """A template with a gap for each field that varies, and one for the opaque number."""

    @classmethod
    def of(
        cls,
        code: int,
        ext_fields: Mapping[str, str],
        prepare: Callable[[Command], None] | None,
        *,
        numbers: Sequence[str] = (),
        texts: Sequence[str] = (),
    ) -> RequestForm:
        """Return the form of requests in which the ext fields of these names vary.

        ``prepare`` finishes a request, as it does for all others of the client.
        """
        fields = {**ext_fields, **dict.fromkeys([*numbers, *texts], "")}
        command = Command(code=code, opaque=0, ext_fields=fields)
        if prepare is not None:
            prepare(command)
        header = encode_header(command).replace(b"%", b"%%")
        gaps = {f'"{name}":""': f'"{name}":"%d"' for name in numbers}
        gaps |= {f'"{name}":""': f'"{name}":%b' for name in texts}
        for member, gap in (gaps | {'"opaque":0,': '"opaque":%d,'}).items():
            # No text looks like one of these members: its quotes would be escaped.
            assert header.count(member.encode()) == 1
            header = header.replace(member.encode(), gap.encode())
        return cls(code, header)

    def fill(self, opaque: int, *values: int | bytes, body: bytes = b"") -> EncodedRequest:
        """Return a request; a text among the values is JSON already."""
        header = self.header % (*values, opaque)
        prefix = encode_json_prefix(len(header), len(body), FRAME_SIZE_MAX)
        return EncodedRequest(self.code, opaque, b"".join((prefix, header, body)))
