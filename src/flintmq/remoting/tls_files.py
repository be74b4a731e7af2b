"""TLS made of PEM files: whom one end trusts, how it shows who it is, and what has changed since.

No key comes with this package, and nothing older than TLS 1.2 is spoken.  Files are looked at
again when a connection is made, so a renewed certificate needs no restart; whatever is open goes
on with the old one.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.remoting.errors import TlsError
from flintmq.settings.tls_settings import TlsClientAuth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

logger = logging.getLogger(__name__)

FILE_SIZE_MAX: Final = 4 << 20
LOOK_INTERVAL_S: Final = 0.5
"""Between two looks at the files, as in RocketMQ."""
SETTLED_NS: Final = 100_000_000
"""A file that changed less than so long before it was read may change again unnoticed."""
_OTHERS: Final = stat.S_IROTH | stat.S_IWOTH


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The PEM files of one end of a connection.

    ``ca_file`` has the certificates that are trusted; without it a client trusts those of the
    system.  ``cert_file`` has the own certificate and those between it and the trusted one, and
    ``key_file`` its key.  ``verify=False`` trusts anybody, and so does not know whom it talks to;
    ``check_hostname=False`` takes any trusted certificate for any host.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    verify: bool = True
    check_hostname: bool = True

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that there are."""
        return tuple(filter(None, (self.ca_file, self.cert_file, self.key_file)))


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Return how a client speaks TLS; TlsError names the file that is not usable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = files.verify and files.check_hostname
    context.verify_mode = ssl.CERT_REQUIRED if files.verify else ssl.CERT_NONE
    if files.ca_file is not None:
        _trust(context, files.ca_file)
    elif files.verify:
        context.load_default_certs()
    if files.cert_file is not None:
        _show(context, files)
    elif files.key_file is not None:
        raise TlsError(files.key_file, "a key without a certificate")
    return context


def server_context(files: TlsFiles, client_auth: TlsClientAuth) -> ssl.SSLContext:
    """Return how a server speaks TLS; TlsError names the file that is not usable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client could otherwise have a server work on new keys for ever, on one connection.
    context.options |= ssl.OP_NO_RENEGOTIATION
    _show(context, files)
    if client_auth is not TlsClientAuth.NONE:
        is_required = client_auth is TlsClientAuth.REQUIRE
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
        assert files.ca_file is not None
        _trust(context, files.ca_file)
    return context


def _trust(context: ssl.SSLContext, path: str) -> None:
    text = _read(path)
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise TlsError(path, f"no certificates in PEM that can be trusted: {error}") from error


def _show(context: ssl.SSLContext, files: TlsFiles) -> None:
    assert files.cert_file is not None
    key_file = files.key_file or files.cert_file
    for path in (files.cert_file, key_file):
        _read(path)
    if Path(key_file).stat().st_mode & _OTHERS:
        logger.warning("every user of this machine can read a private key: path=%s", key_file)
    try:
        # Without a password the library would ask for one at the terminal.
        context.load_cert_chain(files.cert_file, key_file, password=files.key_password or "")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        names = files.cert_file if key_file == files.cert_file else f"{files.cert_file}, {key_file}"
        allowed = "a certificate and its key in PEM, and the password of the key if it has one"
        raise TlsError(names, f"wanted are {allowed}: {reason}") from error


def _read(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            content = file.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise TlsError(path, error.strerror or str(error)) from error
    if len(content) > FILE_SIZE_MAX:
        raise TlsError(path, f"more than {FILE_SIZE_MAX} bytes")
    return content.decode("ascii", "replace")


class _FileState(NamedTuple):
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


class WatchedContext:
    """A TLS context that is made anew when one of its files has changed.

    If the new files cannot be used, or do not belong together yet, the old context stays, and
    they are tried again when they change the next time.
    """

    def __init__(self, make: Callable[[], ssl.SSLContext], paths: Iterable[str] = ()) -> None:
        self._make = make
        self._paths = tuple(map(Path, paths))
        self._states: list[_FileState | None] | None = self._look()
        """How the files looked when they were read; None: they have to be read again."""
        self._context = make()
        self._next_look = time.monotonic() + LOOK_INTERVAL_S
        self._looking = asyncio.Lock()

    async def current(self) -> ssl.SSLContext:
        """Return the context for a new connection."""
        if self._paths and time.monotonic() >= self._next_look:
            async with self._looking:
                if time.monotonic() >= self._next_look:
                    await asyncio.to_thread(self.reload)
                    self._next_look = time.monotonic() + LOOK_INTERVAL_S
        return self._context

    def reload(self) -> None:
        """Look at the files, and use them if they have changed."""
        states = self._look()
        if states == self._states:
            return
        self._states = states if _are_settled(states) else None
        try:
            self._context = self._make()
        except TlsError as error:
            logger.error("changed TLS files left out, the old ones hold: %s", error)  # noqa: TRY400
        else:
            logger.info("TLS files read again: paths=%s", ",".join(map(str, self._paths)))

    def _look(self) -> list[_FileState | None]:
        return [_file_state(path) for path in self._paths]


def _are_settled(states: Iterable[_FileState | None]) -> bool:
    now_ns = time.time_ns()
    return all(one is None or now_ns - one.changed_ns > SETTLED_NS for one in states)


def _file_state(path: Path) -> _FileState | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return _FileState(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
