"""TLS and keys of a client: from its options, or from the environment."""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING, Final

from flintmq.client.errors import UsageError
from flintmq.remoting.errors import TlsError
from flintmq.remoting.tls_files import TlsFiles, WatchedContext, client_context

if TYPE_CHECKING:
    from flintmq.client.options import ClientOptions

USE_TLS: Final = "FLINTMQ_USE_TLS"
CA_FILE: Final = "FLINTMQ_TLS_CA_FILE"
CERT_FILE: Final = "FLINTMQ_TLS_CERT_FILE"
KEY_FILE: Final = "FLINTMQ_TLS_KEY_FILE"
KEY_PASSWORD: Final = "FLINTMQ_TLS_KEY_PASSWORD"
VERIFY: Final = "FLINTMQ_TLS_VERIFY"
CHECK_HOSTNAME: Final = "FLINTMQ_TLS_CHECK_HOSTNAME"


def truth_from_environment(name: str, *, default: bool) -> bool:
    """Return what a variable says; UsageError if it is neither true nor false."""
    text = os.environ.get(name, "").strip().lower()
    if text not in ("", "true", "false"):
        raise UsageError(f"{name} in the environment must be true or false, not {text!r}")
    return default if not text else text == "true"


def files_from_environment() -> TlsFiles:
    """Return the files of TLS that the environment names."""
    return TlsFiles(
        ca_file=os.environ.get(CA_FILE) or None,
        cert_file=os.environ.get(CERT_FILE) or None,
        key_file=os.environ.get(KEY_FILE) or None,
        key_password=os.environ.get(KEY_PASSWORD) or None,
        verify=truth_from_environment(VERIFY, default=True),
        check_hostname=truth_from_environment(CHECK_HOSTNAME, default=True),
    )


def context_for(options: ClientOptions) -> WatchedContext | None:
    """Return how a client speaks TLS, None if it does not; UsageError names a bad file."""
    wanted = options.use_tls
    if wanted is None:
        wanted = options.tls is not None or truth_from_environment(USE_TLS, default=False)
    if not wanted:
        return None
    given = options.tls
    if isinstance(given, ssl.SSLContext):
        context = given
        return WatchedContext(lambda: context)
    files = files_from_environment() if given is None else given
    try:
        return WatchedContext(lambda: client_context(files), files.paths)
    except TlsError as error:
        raise UsageError(str(error)) from error
