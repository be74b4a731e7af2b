"""What finishes the requests that a broker sends to other servers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.broker.config import BrokerConfig
    from flintmq.format.wire.command import Command


def own_requests(
    config: BrokerConfig, *, sign: Callable[[Command], None] | None = None
) -> Callable[[Command], None]:
    """Return what finishes the requests of a broker to other servers.

    They are written in its notation, and signed if it has an account for that: the one of
    ``aclCredentialsFile``, or else by ``sign``.
    """
    header_type = config.serialize_type.header_type
    if config.acl_credentials_file:
        from flintmq.access.credentials_file import read_signer

        sign = read_signer(Path(config.acl_credentials_file))

    def prepare(command: Command) -> None:
        command.serialize_type = header_type
        if sign is not None:
            sign(command)

    return prepare
