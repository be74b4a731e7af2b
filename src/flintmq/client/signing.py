"""Signing requests for brokers with access control."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flintmq.client.options import Credentials
    from flintmq.format.command import Command

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"


def sign(command: Command, credentials: Credentials) -> None:
    """Add the fields that say who sends a request, and prove it.

    What is signed are the values of all ext fields in the order of their names, then the body.
    """
    fields = dict(command.ext_fields)
    fields.pop(SIGNATURE, None)
    fields[ACCESS_KEY] = credentials.access_key
    if credentials.security_token is not None:
        fields[SECURITY_TOKEN] = credentials.security_token
    signed = "".join(fields[name] for name in sorted(fields)).encode() + command.body
    digest = hmac.new(credentials.secret_key.encode(), signed, hashlib.sha1).digest()
    fields[SIGNATURE] = base64.b64encode(digest).decode()
    command.ext_fields = fields
