"""What is wrong with an access file, and why a request is denied."""

from enum import Enum

from flintmq.errors import FlintError
from flintmq.format.wire.codes import ResponseCode
from flintmq.remoting import RefusedError

JAVA_NAME = "org.apache.rocketmq.acl.common.AclException"
"""The word by which clients and their users know a denial."""


class AccessFileError(FlintError):
    """A file of accounts cannot be read or written, or says what cannot be."""


class DenialReason(Enum):
    """Why requests are denied, by the names under which they are counted."""

    NO_ACCESS_KEY = "noAccessKey"
    UNKNOWN_ACCESS_KEY = "unknownAccessKey"
    WRONG_SIGNATURE = "wrongSignature"
    WRONG_ADDRESS = "wrongAddress"
    NOT_ADMIN = "notAdmin"
    NO_PERMISSION = "noPermission"
    UNKNOWN_REQUEST = "unknownRequest"


class DeniedError(RefusedError):
    """A request is not allowed to its sender."""

    def __init__(
        self, reason: DenialReason, words: str, *, code: int = ResponseCode.SYSTEM_ERROR
    ) -> None:
        super().__init__(code, f"{JAVA_NAME}: {words}")
        self.reason = reason
        self.words = words
