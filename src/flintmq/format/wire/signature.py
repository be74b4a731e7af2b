"""Signatures of requests: who sent one, and that it came as it was sent.

A request of an account has the ext field ``AccessKey`` and a ``Signature``: the HMAC-SHA1, in
Base64, of the values of all other ext fields in the order of their names, followed by the body.
The names themselves are not signed, nor is the code of the request.
"""

from __future__ import annotations

import base64
import hmac
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"

_LARGE_BODY_SIZE: Final = 64 << 10
"""From here on, to copy a body takes longer than to sign it in two steps."""


def signature_of(fields: Mapping[str, str], body: bytes, secret: bytes) -> bytes:
    """Return the signature of a request with these ext fields; one that it has is passed over."""
    values = [fields[name] for name in sorted(fields) if name != SIGNATURE]
    # Half a surrogate pair is a question mark in Java's bytes too.
    content = "".join(values).encode("utf-8", "replace")
    if len(body) < _LARGE_BODY_SIZE:
        return base64.b64encode(hmac.digest(secret, content + body, "sha1"))
    signing = hmac.new(secret, content, "sha1")
    signing.update(body)
    return base64.b64encode(signing.digest())


def signed_fields(
    fields: Mapping[str, str],
    body: bytes,
    *,
    access_key: str,
    secret_key: str,
    security_token: str | None = None,
) -> dict[str, str]:
    """Return the ext fields of a request with the access key of its sender and a signature."""
    signed = {name: value for name, value in fields.items() if name != SIGNATURE}
    signed[ACCESS_KEY] = access_key
    if security_token is not None:
        signed[SECURITY_TOKEN] = security_token
    signed[SIGNATURE] = signature_of(signed, body, secret_key.encode()).decode()
    return signed
