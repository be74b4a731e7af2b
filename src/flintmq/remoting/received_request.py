"""A request as it came from a peer, the same to look at whichever notation its header has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from flintmq.format.wire.command import Command, command_of_members, decode_command, json_members
from flintmq.format.wire.frame import HeaderType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flintmq.format.wire.codes import LanguageCode
    from flintmq.format.wire.frame import Frame

_JSON: Final = HeaderType.JSON
_OPAQUE_END: Final = 1 << 31


class ReceivedRequest:
    """One request of a peer, before anybody has handled it.

    What decides its way is there at once.  The rest costs nothing until somebody asks: `command`
    is made of a JSON header only then, and `ext_fields`, `language` and `version` come from it.
    """

    __slots__ = (
        "_command",
        "_members",
        "body",
        "code",
        "flag",
        "header",
        "header_type",
        "opaque",
        "raw_fields",
    )

    def __init__(
        self,
        code: int,
        flag: int,
        opaque: int,
        raw_fields: Mapping[str, Any],
        body: bytes,
        header_type: HeaderType,
        members: dict[str, Any],
        header: bytes,
        command: Command | None,
    ) -> None:
        self.code = code
        self.flag = flag
        self.opaque = opaque
        self.raw_fields = raw_fields
        """The ext fields as the header has them; in JSON a value need not be a text."""
        self.body = body
        self.header_type = header_type
        """The notation of the header, in which the request is answered as well."""
        self._members = members
        self.header = header
        """The header as it came, where it is of the usual kind; else nothing."""
        self._command = command

    @classmethod
    def of(cls, command: Command, header: bytes = b"") -> ReceivedRequest:
        """Return the request that a decoded command is, with its binary header if it has one."""
        return cls(
            command.code,
            command.flag,
            command.opaque,
            command.ext_fields,
            command.body,
            command.serialize_type,
            {},
            header,
            command,
        )

    def __repr__(self) -> str:
        return f"<ReceivedRequest code={self.code} flag={self.flag} opaque={self.opaque}>"

    @property
    def command(self) -> Command:
        """The request with everything in its header checked.

        Raises CommandHeaderError if something in the header is impossible that nobody had looked
        at before; the connection has to be closed then.
        """
        command = self._command
        if command is None:
            command = self._command = command_of_members(self._members, self.header, self.body)
        return command

    @property
    def ext_fields(self) -> Mapping[str, str]:
        """The ext fields as texts."""
        return self.command.ext_fields

    @property
    def language(self) -> LanguageCode:
        """The language of the client that sent the request."""
        return self.command.language

    @property
    def version(self) -> int:
        """The release of RocketMQ that the client speaks."""
        return self.command.version


def receive(frame: Frame) -> ReceivedRequest:
    """Return what a frame brings: a request, or an answer, whose flag says so.

    A JSON header of the usual kind is read without making a command of it, which would take
    longer than all else that is done for a send.
    """
    header_type, header, body = frame
    if header_type is not _JSON:
        return ReceivedRequest.of(decode_command(frame), header)
    if (members := json_members(header)) is None:
        return ReceivedRequest.of(decode_command(frame))
    get = members.get
    code, flag, opaque, raw_fields = get("code"), get("flag"), get("opaque"), get("extFields")
    if (
        code.__class__ is int
        and flag.__class__ is int
        and opaque.__class__ is int
        and raw_fields.__class__ is dict
        and -_OPAQUE_END <= opaque < _OPAQUE_END
    ):
        return ReceivedRequest(
            code, flag, opaque, raw_fields, body, header_type, members, header, None
        )
    return ReceivedRequest.of(command_of_members(members, header, body))
