"""What a server's settings of TLS lead to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.settings.tls_settings import TlsMode, check_tls, with_tls_file

if TYPE_CHECKING:
    from flintmq.remoting.tls_files import WatchedContext
    from flintmq.remoting.tls_listener import ServerTls
    from flintmq.settings.tls_settings import TlsSettings


def server_tls(given: TlsSettings) -> ServerTls | None:
    """Return how a server takes connections by TLS, None if it takes none.

    It takes none when the mode is disabled, and when there is no certificate: none is built in.

    Raises:
        ConfigError: settings that contradict each other, or a file of them that is not there.
        TlsError: a certificate or a key that cannot be used.
    """
    settings = with_tls_file(given)
    check_tls(settings)
    if settings.tls_mode is TlsMode.DISABLED or settings.tls_server_cert_path is None:
        return None
    # Only who has a certificate needs it.
    from flintmq.remoting.tls_files import TlsFiles, WatchedContext, server_context
    from flintmq.remoting.tls_listener import ServerTls

    files = TlsFiles(
        ca_file=settings.tls_server_trust_cert_path,
        cert_file=settings.tls_server_cert_path,
        key_file=settings.tls_server_key_path,
        key_password=settings.tls_server_key_password,
    )
    auth = settings.tls_need_client_auth
    return ServerTls(
        context=WatchedContext(lambda: server_context(files, auth), files.paths),
        is_enforced=settings.tls_mode is TlsMode.ENFORCING,
    )


def outgoing_tls(given: TlsSettings, *, use_tls: bool = False) -> WatchedContext | None:
    """Return how a server asks other servers by TLS, None if it asks without."""
    settings = with_tls_file(given)
    is_enforcing = settings.tls_mode is TlsMode.ENFORCING
    told = settings.tls_enable
    enabled = is_enforcing if told is None else told.lower() == "true"
    if not (use_tls or enabled):
        return None
    from flintmq.remoting.tls_files import TlsFiles, WatchedContext, client_context

    files = TlsFiles(
        ca_file=settings.tls_client_trust_cert_path,
        cert_file=settings.tls_client_cert_path,
        key_file=settings.tls_client_key_path,
        key_password=settings.tls_client_key_password,
        verify=settings.tls_client_auth_server,
        check_hostname=settings.tls_client_check_host,
    )
    return WatchedContext(lambda: client_context(files), files.paths)
