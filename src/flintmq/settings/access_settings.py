"""Settings of access control, which brokers and name servers have alike."""

from pathlib import Path
from typing import Final

from flintmq.model.value_class import value_class
from flintmq.settings.property_files import ConfigError
from flintmq.settings.setting import Owner, number, optional, switch
from flintmq.settings.tls_settings import TlsSettings

_MAIN_FILE: Final = Path("conf", "plain_acl.yml")
"""Where RocketMQ has it, below its home."""


@value_class
class AccessSettings(TlsSettings):
    """Where accounts are kept and what their white lists mean.  Times are milliseconds."""

    acl_file: str | None = optional("aclFile", owner=Owner.FLINTMQ)
    """Unless set, ``conf/plain_acl.yml`` in ``rocketmqHome``."""
    acl_white_list_grants: bool = switch("aclWhiteListGrants", owner=Owner.FLINTMQ)
    acl_reload_interval_ms: int = number(
        "aclReloadIntervalMillis", 1000, minimum=10, owner=Owner.FLINTMQ
    )


def access_file(acl_file: str | None, rocketmq_home: str | None) -> Path:
    """Return where the main access file is; raise ConfigError if nothing says it."""
    if acl_file:
        return Path(acl_file)
    if rocketmq_home:
        return rocketmq_home / _MAIN_FILE
    allowed = "true where aclFile names the access file, or rocketmqHome what it lies in"
    raise ConfigError("aclEnable", "true", allowed)
