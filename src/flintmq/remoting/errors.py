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

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"cannot listen on {address}: {reason}")
        self.address = address


class ConnectionLostError(RemotingError):
    """The connection ended before the answer came; whether the request was done is unknown."""

    retriable: ClassVar[bool] = True


class AnswerTimeoutError(RemotingError):
    """No answer came in time; whether the request was done is unknown."""

    retriable: ClassVar[bool] = True


class TooManyInFlightError(RemotingError):
    """As many requests as allowed wait for answers on this connection already."""

    retriable: ClassVar[bool] = True


class RefusedError(RemotingError):
    """A request is answered with a code other than success; a processor raises it."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
