"""The account under which a server itself signs requests: a file like RocketMQ's ``tools.yml``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from flintmq.access.access_document import FILE_SIZE_MAX, load_yaml, text_of
from flintmq.access.access_errors import AccessFileError
from flintmq.format.wire.signature import signed_fields

if TYPE_CHECKING:
    from flintmq.format.wire.command import Command


def read_signer(path: Path) -> Callable[[Command], None]:
    """Return what signs requests with the access key and the secret key in a file."""
    try:
        with path.open("rb") as file:
            members = load_yaml(file.read(FILE_SIZE_MAX + 1))
    except OSError as error:
        raise AccessFileError(f"{path}: {error.strerror}") from error
    except AccessFileError as error:
        raise AccessFileError(f"{path}: {error}") from error
    access_key, secret_key = (
        text_of(members, name, str(path)) for name in ("accessKey", "secretKey")
    )
    if not access_key or not secret_key:
        raise AccessFileError(f"{path}: accessKey or secretKey is missing")

    return signer(access_key=access_key, secret_key=secret_key)


def signer(
    *, access_key: str, secret_key: str, security_token: str | None = None
) -> Callable[[Command], None]:
    """Return what signs requests with an access key and a secret key."""

    def sign(command: Command) -> None:
        command.ext_fields = signed_fields(
            command.ext_fields,
            command.body,
            access_key=access_key,
            secret_key=secret_key,
            security_token=security_token,
        )

    return sign
