"""The file of contexts, and what of it becomes the options of a client.

A context names a cluster: its name servers, the file with the keys of an account, and TLS.  The
file itself has no secret; those stand in files that only their owner may read, or in the
environment.
"""

from __future__ import annotations

import os
import stat
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from flintmq.errors import FlintError
from flintmq.settings.durable_file import replace_durably

if TYPE_CHECKING:
    from flintmq.client.options import ClientOptions, Credentials

FILE_ENVIRONMENT: Final = "FLINTMQ_CONTEXT_FILE"
NAME_ENVIRONMENT: Final = "FLINTMQ_CONTEXT"
NAMESRV_ENVIRONMENT: Final = "NAMESRV_ADDR"
FILE_SIZE_MAX: Final = 1 << 20
CONTEXT_COUNT_MAX: Final = 1000
NAME_LENGTH_MAX: Final = 64
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class ContextError(FlintError):
    """A context cannot be used, or there is none of that name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One cluster by name."""

    namesrv: str
    credentials_file: str | None = None
    """A YAML file with accessKey and secretKey, which only its owner may read."""
    tls: bool = False
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_check_hostname: bool = True


@dataclass(slots=True)
class ContextFile:
    """All contexts of a user, and the one that counts unless another is named."""

    path: Path
    contexts: dict[str, Context] = field(default_factory=dict)
    current: str | None = None

    @classmethod
    def read(cls, path: Path | None = None) -> ContextFile:
        """Return the contexts of a file; none if it is not there."""
        path = path or default_path()
        members = _read_yaml(path)
        if members is None:
            return cls(path)
        contexts = {}
        known = {one.name for one in fields(Context)}
        for name, value in (members.get("contexts") or {}).items():
            if not isinstance(value, dict) or not value.keys() <= known or "namesrv" not in value:
                raise ContextError(f"{path}: the context {name!r} is not one: remove or mend it")
            contexts[str(name)] = Context(**value)
        current = members.get("current")
        return cls(path, contexts, None if current is None else str(current))

    def write(self) -> None:
        """Replace the file; only its owner may read it."""
        shown = {
            "current": self.current,
            "contexts": {
                name: {key: value for key, value in asdict(one).items() if value not in (None, "")}
                for name, one in sorted(self.contexts.items())
            },
        }
        import yaml

        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)
        replace_durably(self.path, text.encode(), mode=0o600)

    def get(self, name: str) -> Context:
        """Return a context by name."""
        found = self.contexts.get(name)
        if found is None:
            known = ", ".join(sorted(self.contexts)) or "none"
            raise ContextError(
                f"there is no context {name!r} (known: {known}); flintmq context add makes one"
            )
        return found

    def put(self, name: str, context: Context) -> None:
        """Add a context, or replace it."""
        if not name or len(name) > NAME_LENGTH_MAX or not name.isprintable():
            raise ContextError(f"not the name of a context: {name!r}")
        if len(self.contexts) >= CONTEXT_COUNT_MAX and name not in self.contexts:
            raise ContextError(f"there are {CONTEXT_COUNT_MAX} contexts already")
        self.contexts[name] = context


def default_path() -> Path:
    """Return where the contexts of this user are."""
    named = os.environ.get(FILE_ENVIRONMENT)
    if named:
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "flintmq" / "contexts.yml"


def _read_yaml(path: Path) -> dict[str, Any] | None:
    try:
        if path.stat().st_size > FILE_SIZE_MAX:
            raise ContextError(f"{path} has more than {FILE_SIZE_MAX} bytes")
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ContextError(f"{path} cannot be read: {error}") from error
    # Most commands are run without contexts, and need no YAML.
    import yaml

    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ContextError(f"{path} cannot be read: {error}") from error
    if value is not None and not isinstance(value, dict):
        raise ContextError(f"{path}: a map is expected")
    return value or {}


def read_credentials(path: Path) -> Credentials:
    """Return the keys in a file; ContextError if others than its owner may read it."""
    from flintmq.client.options import Credentials

    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise ContextError(f"{path}: {error.strerror}") from error
    if mode & _OTHERS:
        raise ContextError(f"{path} may be read by others than its owner; chmod 600 {path}")
    members = _read_yaml(path) or {}
    access_key, secret_key = members.get("accessKey"), members.get("secretKey")
    if not access_key or not secret_key:
        raise ContextError(f"{path}: accessKey or secretKey is missing")
    token = members.get("securityToken")
    return Credentials(
        access_key=str(access_key),
        secret_key=str(secret_key),
        security_token=None if token is None else str(token),
    )


def client_options(
    *, namesrv: str | None = None, context: str | None = None, timeout_ms: int = 5000
) -> ClientOptions:
    """Return how a command speaks to its cluster.

    In this order count: the context that is named, ``namesrv`` alone, FLINTMQ_CONTEXT and
    NAMESRV_ADDR of the environment, the current context.  ``namesrv`` beside a context replaces
    its name servers.  Keys of a context are never sent to a cluster that was named without it.
    """
    from flintmq.client.options import ClientOptions
    from flintmq.remoting.tls_files import TlsFiles

    file = ContextFile.read()
    name = context or (None if namesrv else os.environ.get(NAME_ENVIRONMENT))
    if name is None and not namesrv and not os.environ.get(NAMESRV_ENVIRONMENT):
        name = file.current
    if name is None:
        return ClientOptions(namesrv=namesrv, request_timeout_ms=timeout_ms)
    chosen = file.get(name)
    keys = chosen.credentials_file
    tls = None
    if chosen.tls_ca_file or chosen.tls_cert_file:
        tls = TlsFiles(
            ca_file=chosen.tls_ca_file,
            cert_file=chosen.tls_cert_file,
            key_file=chosen.tls_key_file,
            check_hostname=chosen.tls_check_hostname,
        )
    return ClientOptions(
        namesrv=namesrv or chosen.namesrv,
        credentials=None if keys is None else read_credentials(Path(keys).expanduser()),
        use_tls=chosen.tls or None,
        tls=tls,
        request_timeout_ms=timeout_ms,
    )
