"""What is raised for frames and commands: the peer's mistakes, ours, and a header's fields.

A `RemoteProtocolError` leaves a connection without a known frame boundary or without a number to
answer to: close it.  A `HeaderFieldError` concerns one request only: answer it and go on.
"""

from typing import ClassVar

from flintmq.errors import FlintError
from flintmq.format.errors import FormatError


class RemoteProtocolError(FormatError):
    """The peer sent what no frame or command may be."""

    kind: ClassVar[str] = "request"
    """What was wrong, in a word under which it is counted."""


class FrameError(RemoteProtocolError):
    """The sizes or the header type at the start of a frame are impossible."""

    kind = "frame"


class CommandHeaderError(RemoteProtocolError):
    """The header of a whole frame is no command."""

    kind = "header"


class LocalProtocolError(FlintError):
    """We were about to send what the wire cannot carry."""


class HeaderFieldError(FormatError):
    """A field of a request or response header is missing or ill-typed."""

    def __init__(self, header_name: str, field: str, reason: str) -> None:
        super().__init__(f"{header_name}: field {field} {reason}")
        # The arguments of this class, so that copies and pickles can be made from them.
        self.args = (header_name, field, reason)
        self.header_name = header_name
        self.field = field


class MissingFieldError(HeaderFieldError):
    """A field that a header must have is not there."""

    def __init__(self, header_name: str, field: str) -> None:
        super().__init__(header_name, field, "is missing")
        self.args = (header_name, field)


class FieldLengthError(HeaderFieldError):
    """A name is longer than names of its kind may be."""

    def __init__(self, header_name: str, field: str, length_max: int) -> None:
        super().__init__(header_name, field, f"is longer than {length_max} characters")
        self.args = (header_name, field, length_max)


class FieldValueError(HeaderFieldError):
    """The text of a field is no value of its type."""

    def __init__(self, header_name: str, field: str, expected: str, text: str) -> None:
        super().__init__(header_name, field, f"is not {expected}: {_shortened(text)}")
        self.args = (header_name, field, expected, text)
        self.expected = expected
        self.text = text


_SHOWN_CHARACTERS_MAX = 64


def _shortened(text: str) -> str:
    # What a peer sent may be megabytes long and is repeated in an answer and in a log.
    shown = text[:_SHOWN_CHARACTERS_MAX]
    return repr(shown) if shown == text else f"{shown!r}..."
