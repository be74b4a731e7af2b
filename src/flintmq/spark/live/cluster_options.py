"""How a cluster is reached: the options that source and sink share.

Secrets are never shown: not in the text of an object, not in an error.  The names of the options
that hold them match Spark's own ``spark.redaction.regex``, so Spark hides their values as well.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from flintmq.client.client_tls import (
    USE_TLS,
    context_for,
    files_from_environment,
    truth_from_environment,
)
from flintmq.client.errors import UsageError
from flintmq.client.options import NAMESRV_ENVIRONMENT, ClientOptions, Credentials
from flintmq.remoting.tls_files import TlsFiles
from flintmq.spark.errors import OptionError
from flintmq.spark.live.live_choice import ALIASES, NAMESRV
from flintmq.spark.options.option_values import Given, parse_truth

CONNECTION_OPTIONS: Final = (
    NAMESRV,
    "accessKey",
    "secretKey",
    "securityToken",
    "useTLS",
    "tls.caFile",
    "tls.certFile",
    "tls.keyFile",
    "tls.keyPassword",
    "tls.verify",
    "tls.checkHostname",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConnection:
    """The addresses of a cluster and the credentials to reach it; executors get it pickled."""

    namesrv: str
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    use_tls: bool = False
    tls: TlsFiles = field(default_factory=TlsFiles)

    def client_options(self) -> ClientOptions:
        """Return the settings of a client for this cluster; OptionError if they make no sense."""
        credentials = None
        if self.access_key is not None and self.secret_key is not None:
            credentials = Credentials(
                access_key=self.access_key,
                secret_key=self.secret_key,
                security_token=self.security_token,
            )
        try:
            options = ClientOptions(
                namesrv=self.namesrv, credentials=credentials, use_tls=self.use_tls, tls=self.tls
            )
            context_for(options)
        except UsageError as error:
            raise OptionError(str(error)) from error
        return options


def lowered(options: Mapping[str, str], aliases: Mapping[str, str] = ALIASES) -> dict[str, str]:
    """Return options by their names in lower case, aliases replaced by what they stand for.

    OptionError if an option is given by two names with two values.
    """
    given: dict[str, str] = {}
    for name, value in options.items():
        known = aliases.get(name.lower(), name.lower())
        if known in given and given[known] != value:
            raise OptionError(f"{known} is given twice, once as {name}, with two values")
        given[known] = value
    return given


def parse_connection(given: Given) -> ClusterConnection:
    """Return how to reach the cluster that options name."""
    namesrv = given.get(NAMESRV, "").strip() or os.environ.get(NAMESRV_ENVIRONMENT, "").strip()
    if not namesrv:
        raise OptionError(
            f"no name server was given: option namesrv, or {NAMESRV_ENVIRONMENT} in the environment"
        )
    if ("accesskey" in given) != ("secretkey" in given):
        raise OptionError("accessKey and secretKey belong together; one of them is missing")
    # What the environment of the driver says has to reach the executors too.
    try:
        by_environment, files = (
            truth_from_environment(USE_TLS, default=False),
            files_from_environment(),
        )
    except UsageError as error:
        raise OptionError(str(error)) from error
    connection = ClusterConnection(
        namesrv=namesrv,
        access_key=given.get("accesskey"),
        secret_key=given.get("secretkey"),
        security_token=given.get("securitytoken"),
        use_tls=parse_truth("useTLS", given, default=by_environment),
        tls=TlsFiles(
            ca_file=given.get("tls.cafile", files.ca_file),
            cert_file=given.get("tls.certfile", files.cert_file),
            key_file=given.get("tls.keyfile", files.key_file),
            key_password=given.get("tls.keypassword", files.key_password),
            verify=parse_truth("tls.verify", given, default=files.verify),
            check_hostname=parse_truth("tls.checkHostname", given, default=files.check_hostname),
        ),
    )
    connection.client_options()
    return connection
