"""How a cluster is reached: the options that source and sink share.

Secrets are never shown: not in the text of an object, not in an error.  The names of the options
that hold them match Spark's own ``spark.redaction.regex``, so Spark hides their values as well.
"""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from flintmq.client.errors import UsageError
from flintmq.client.options import NAMESRV_ENVIRONMENT, ClientOptions, Credentials
from flintmq.spark.errors import OptionError
from flintmq.spark.option_values import Given, parse_truth

NAMESRV: Final = "namesrv"
ALIASES: Final = {
    "nameserver": NAMESRV,
    "namesrvaddr": NAMESRV,
    "rocketmq.namesrv.addr": NAMESRV,
}
"""Other names that users know, in lower case, and what they stand for."""

CONNECTION_OPTIONS: Final = (
    NAMESRV,
    "accessKey",
    "secretKey",
    "securityToken",
    "useTLS",
    "tls.caFile",
    "tls.certFile",
    "tls.keyFile",
    "tls.verify",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Where a cluster is and who asks.  It can be pickled: executors connect by it."""

    namesrv: str
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    use_tls: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True

    def client_options(self) -> ClientOptions:
        """Return the same as a client takes it; OptionError if it makes no sense."""
        credentials = None
        if self.access_key is not None and self.secret_key is not None:
            credentials = Credentials(
                access_key=self.access_key,
                secret_key=self.secret_key,
                security_token=self.security_token,
            )
        try:
            return ClientOptions(namesrv=self.namesrv, credentials=credentials, tls=self._tls())
        except UsageError as error:
            raise OptionError(str(error)) from error

    def _tls(self) -> ssl.SSLContext | None:
        if not self.use_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file)
        except OSError as error:
            raise OptionError(f"useTLS: a file cannot be used: {error}") from error
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


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


def parse_connection(given: Given) -> Connection:
    """Return how to reach the cluster that options name."""
    namesrv = given.get(NAMESRV, "").strip() or os.environ.get(NAMESRV_ENVIRONMENT, "").strip()
    if not namesrv:
        raise OptionError(
            f"no name server was given: option namesrv, or {NAMESRV_ENVIRONMENT} in the environment"
        )
    if ("accesskey" in given) != ("secretkey" in given):
        raise OptionError("accessKey and secretKey belong together; one of them is missing")
    connection = Connection(
        namesrv=namesrv,
        access_key=given.get("accesskey"),
        secret_key=given.get("secretkey"),
        security_token=given.get("securitytoken"),
        use_tls=parse_truth("useTLS", given, default=False),
        ca_file=given.get("tls.cafile"),
        cert_file=given.get("tls.certfile"),
        key_file=given.get("tls.keyfile"),
        verify=parse_truth("tls.verify", given, default=True),
    )
    connection.client_options()
    return connection
