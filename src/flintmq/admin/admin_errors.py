"""What goes wrong in administration, beyond what servers and connections say themselves."""

from __future__ import annotations

from typing import Final

from flintmq.client.errors import (
    AccessDeniedError,
    ConsumerNotOnlineError,
    GroupNotExistError,
    MessageNotFoundError,
    NoPermissionError,
    NotFoundError,
    TopicNotExistError,
)
from flintmq.errors import FlintError

ABSENT: Final = (
    TopicNotExistError,
    GroupNotExistError,
    NotFoundError,
    ConsumerNotOnlineError,
    MessageNotFoundError,
)
"""The answers of servers by which they say that there is no such thing."""

DENIED: Final = (AccessDeniedError, NoPermissionError)
"""The answers of servers by which they say that an account may not do this."""


class AdminError(FlintError):
    """Something an operator asked for could not be done."""


class MissingError(AdminError):
    """What an operator has named is not there."""


def is_absence(error: BaseException) -> bool:
    """Whether an error says that what was asked for is not there."""
    return isinstance(error, (*ABSENT, MissingError))


def is_denial(error: BaseException) -> bool:
    """Whether an error says that the account may not do what was asked for."""
    return isinstance(error, DENIED)
