"""Signing requests for brokers with access control."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.format.wire.signature import signed_fields

if TYPE_CHECKING:
    from flintmq.client.options import Credentials
    from flintmq.format.wire.command import Command


def sign(command: Command, credentials: Credentials) -> None:
    """Add the access key of the sender and a signature to a request."""
    command.ext_fields = signed_fields(
        command.ext_fields,
        command.body,
        access_key=credentials.access_key,
        secret_key=credentials.secret_key,
        security_token=credentials.security_token,
    )
