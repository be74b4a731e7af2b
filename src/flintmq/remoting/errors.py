"""What goes wrong between two peers, beyond the bytes themselves."""

from typing import ClassVar

from flintmq.errors import FlintError


class RemotingError(FlintError):
    """A peer could not be reached, did not answer, or would not."""


class ConnectError(RemotingError):
    """No connection to an address could be made."""

    retriable: ClassVar[bool] = True

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"no connection to {address}: {reason}")
        self.address = address


class BindError(RemotingError):
    """An address to listen on cannot be had."""

    def __init__(self, address: str, reason: str, *, is_foreign: bool = False) -> None:
        super().__init__(f"cannot listen on {address}: {reason}")
        self.address = address
        self.is_foreign = is_foreign
        """Whether it is no address of this machine."""


class TlsError(RemotingError):
    """A file for TLS cannot be used."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"TLS: {path}: {reason}")
        self.path = path


class ConnectionLostError(RemotingError):
    """The connection ended before the answer came; whether the request was done is unknown."""

    retriable: ClassVar[bool] = True


class AnswerTimeoutError(RemotingError):
    """No answer came in time; whether the request was done is unknown."""

    retriable: ClassVar[bool] = True


class NotSentError(RemotingError):
    """The server read so slowly that the request was not sent in time: it was not done."""

    retriable: ClassVar[bool] = True


class ClosedError(RemotingError):
    """The client is closed: it asks nobody any more."""


class TooManyInFlightError(RemotingError):
    """As many requests as allowed wait for answers on this connection already."""

    retriable: ClassVar[bool] = True


class RefusedError(RemotingError):
    """A request is answered with a code other than success; admissions and processors raise it."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
