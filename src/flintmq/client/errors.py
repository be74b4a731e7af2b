"""Errors that users of a client see: one class for each cause, with the next step if known."""

from __future__ import annotations

from typing import ClassVar, Final

from flintmq.errors import FlintError
from flintmq.format.wire.codes import ResponseCode


class ClientError(FlintError):
    """Something a client was asked for could not be done."""


class UsageError(ClientError):
    """The call itself makes no sense: a closed client, a message without a body, a bad name."""


class UnreadableBodyError(ClientError):
    """The body of a message says that it is compressed and cannot be decompressed."""

    def __init__(self, message_id: str, reason: str) -> None:
        self.message_id = message_id
        self.reason = reason
        super().__init__(
            f"the body of message {message_id} cannot be decompressed: {reason}; "
            "stored_body has its bytes"
        )


class NoNameServerError(ClientError):
    """No name server is known, or none of those known can be reached."""

    retriable: ClassVar[bool] = True


class NoRouteError(ClientError):
    """No broker has the topic; the text says which of the causes it is and what to do."""

    retriable: ClassVar[bool] = True

    def __init__(self, topic: str, cause: str, next_step: str) -> None:
        super().__init__(f"no route to topic {topic!r}: {cause}; {next_step}")
        self.topic = topic
        self.cause = cause
        self.next_step = next_step


class SendFailedError(ClientError):
    """A message was not acknowledged; it may have been stored all the same."""

    retriable: ClassVar[bool] = True


class MessageNotFoundError(ClientError):
    """No broker has the message that was asked for; it may be deleted already."""


class RequestTimeoutError(ClientError):
    """No reply to a request message came in time."""

    retriable: ClassVar[bool] = True


_DENIAL: Final = "AclException"
"""The word by which servers of RocketMQ, and ours, say that a request is denied."""


class ResponseError(ClientError):
    """A server answered with a code other than success.

    Each kind registers under its code; `for_code` gives the right one.
    """

    code: int = -1
    next_step: ClassVar[str] = ""
    _kinds: ClassVar[dict[int, type[ResponseError]]] = {}

    def __init_subclass__(cls, *, code: int | None = None) -> None:
        """Register a kind of answer; one without a code of its own is told by its words."""
        if code is None:
            return
        assert code not in ResponseError._kinds, f"two classes for code {code}"
        ResponseError._kinds[code] = cls
        cls.code = code

    def __init__(self, remark: str | None, *, address: str = "", code: int | None = None) -> None:
        self.code = type(self).code if code is None else code
        self.remark = remark or ""
        self.address = address
        try:
            name = ResponseCode(self.code).name
        except ValueError:
            name = "unknown code"
        step = f" ({self.next_step})" if self.next_step else ""
        where = f" from {address}" if address else ""
        super().__init__(f"{name} {self.code}{where}: {self.remark}{step}")

    @classmethod
    def for_code(cls, code: int, remark: str | None, *, address: str = "") -> ResponseError:
        """Return the error for an answer."""
        if code == ResponseCode.SYSTEM_ERROR and remark and _DENIAL in remark:
            return AccessDeniedError(remark, address=address)
        kind = cls._kinds.get(code)
        if kind is None:
            return ResponseError(remark, address=address, code=code)
        return kind(remark, address=address)


class SystemFailureError(ResponseError, code=ResponseCode.SYSTEM_ERROR):
    """The server failed, or refuses for a reason that has no code of its own."""

    retriable: ClassVar[bool] = True


class AccessDeniedError(SystemFailureError):
    """The server has access control, and the account may not do this or is not known there.

    Nothing but the words tells it from other failures: servers of RocketMQ have no code for it.
    """

    retriable: ClassVar[bool] = False
    next_step: ClassVar[str] = "see the credentials of the client and the accounts of the server"


class SystemBusyError(ResponseError, code=ResponseCode.SYSTEM_BUSY):
    """The server has too much to do."""

    retriable: ClassVar[bool] = True
    next_step: ClassVar[str] = "try again in a moment; the remark says which limit was hit"


class MessageIllegalError(ResponseError, code=ResponseCode.MESSAGE_ILLEGAL):
    """The message is too large, or has properties that are."""

    next_step: ClassVar[str] = "make body or properties smaller, or raise maxMessageSize"


class ServiceNotAvailableError(ResponseError, code=ResponseCode.SERVICE_NOT_AVAILABLE):
    """The broker takes no messages: its disk is full or failed, it stops, or it is a replica."""

    retriable: ClassVar[bool] = True


class NoPermissionError(ResponseError, code=ResponseCode.NO_PERMISSION):
    """The topic, the group or the broker does not allow the request."""


class TopicNotExistError(ResponseError, code=ResponseCode.TOPIC_NOT_EXIST):
    """The server does not know the topic."""

    next_step: ClassVar[str] = "create the topic, or switch autoCreateTopicEnable on"


class NotFoundError(ResponseError, code=ResponseCode.QUERY_NOT_FOUND):
    """The server has nothing that matches the request."""


class SubscriptionParseError(ResponseError, code=ResponseCode.SUBSCRIPTION_PARSE_FAILED):
    """A subscription expression cannot be understood."""


class SubscriptionNotExistError(ResponseError, code=ResponseCode.SUBSCRIPTION_NOT_EXIST):
    """The broker has not heard of the group's subscription yet."""

    retriable: ClassVar[bool] = True


class SubscriptionNotLatestError(ResponseError, code=ResponseCode.SUBSCRIPTION_NOT_LATEST):
    """The broker knows an older subscription of the group."""

    retriable: ClassVar[bool] = True


class GroupNotExistError(ResponseError, code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST):
    """The broker does not know the consumer group."""

    next_step: ClassVar[str] = "create the group, or switch autoCreateSubscriptionGroup on"


class ConsumerNotOnlineError(ResponseError, code=ResponseCode.CONSUMER_NOT_ONLINE):
    """No member of the group is connected."""


class FlowControlError(ResponseError, code=ResponseCode.FLOW_CONTROL):
    """The broker asks for a pause."""

    retriable: ClassVar[bool] = True
