"""Options of a client from a TOML file and the environment.

    namesrv = "10.0.0.1:9876;10.0.0.2:9876"
    namespace = "shop"
    access_key = "…"
    secret_key = "…"

    [tls]
    ca_file = "/etc/pki/ca.pem"

The names are those of `ClientOptions`, of `Credentials`, and in the table ``tls`` of `TlsFiles`.
"""

from __future__ import annotations

import logging
import os
import stat
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from flintmq.client.errors import UsageError
from flintmq.client.field_types import check_field_types
from flintmq.client.keywords import nearest_hint
from flintmq.client.options import ClientOptions, Credentials
from flintmq.remoting.tls_files import TlsFiles

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

OPTIONS_FILE: Final = "FLINTMQ_CLIENT_FILE"
FILE_SIZE_MAX: Final = 1 << 20
_PREFIX: Final = "FLINTMQ_"
_TLS: Final = "tls"
_KEYS: Final = tuple(field.name for field in fields(Credentials))
_PLAIN: Final = {
    field.name: str(field.type).removesuffix(" | None")
    for field in fields(ClientOptions)
    if str(field.type).removesuffix(" | None") in ("bool", "int", "str")
}
"""The options that are a text, a number or a truth, with their types."""


def load_options(
    path: str | Path | None = None, *, environment: Mapping[str, str] | None = None
) -> ClientOptions:
    """Return the options of a client from a file, with what the environment says put over them.

    Without a path the file is the one that FLINTMQ_CLIENT_FILE names, if it names one.  A variable
    is called FLINTMQ_ and the name of its option, as in FLINTMQ_NAMESRV.  UsageError says what is
    wrong, and where.
    """
    environ = os.environ if environment is None else environment
    path = path or environ.get(OPTIONS_FILE)
    given = {} if path is None else _read(Path(path))
    for name, kind in _PLAIN.items():
        text = environ.get(_PREFIX + name.upper())
        if text:
            given[name] = _value(_PREFIX + name.upper(), text, kind)
    keys = {name: environ.get(_PREFIX + name.upper()) or given.pop(name, None) for name in _KEYS}
    given = {name: value for name, value in given.items() if name not in _KEYS}
    try:
        if keys["access_key"] or keys["secret_key"]:
            given["credentials"] = _credentials(keys)
        if _TLS in given:
            given[_TLS] = tls = TlsFiles(**given[_TLS])
            check_field_types(tls)
        return ClientOptions(**given)
    except UsageError as error:
        raise UsageError(f"{path}: {error}" if path else str(error)) from error


def _credentials(keys: Mapping[str, Any]) -> Credentials:
    if not keys["access_key"] or not keys["secret_key"]:
        raise UsageError("access_key and secret_key belong together")
    return Credentials(**keys)


def _value(name: str, text: str, kind: str) -> object:
    """Return the value that a variable of the environment has for an option."""
    if kind == "str":
        return text
    if kind == "int" and text.strip().isdecimal():
        return int(text)
    if kind == "bool" and text.strip().lower() in ("true", "false"):
        return text.strip().lower() == "true"
    wanted = "a number" if kind == "int" else "true or false"
    raise UsageError(f"{name} in the environment must be {wanted}, not {text!r}")


def _read(path: Path) -> dict[str, Any]:
    """Return what a file says; every name in it is one that is known."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    if len(content) > FILE_SIZE_MAX:
        raise UsageError(f"{path} has more than {FILE_SIZE_MAX} bytes")
    try:
        given = tomllib.loads(content.decode())
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
    _check_names(path, given, [*_PLAIN, *_KEYS, _TLS])
    tls = given.get(_TLS, {})
    if not isinstance(tls, dict):
        raise UsageError(f"{path}: {_TLS} must be a table")
    _check_names(path, tls, [field.name for field in fields(TlsFiles)])
    if "secret_key" in given and mode & (stat.S_IRGRP | stat.S_IROTH):
        logger.warning("others can read the secret key: file=%s (chmod 600)", path)
    return given


def _check_names(path: Path, given: Mapping[str, object], known: list[str]) -> None:
    for name in given:
        if name not in known:
            raise UsageError(f"{path}: unknown option {name!r}{nearest_hint(name, known)}")
