"""The ports that a broker listens on, bound before anything else starts."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from flintmq.remoting import BindError, bind
from flintmq.settings.property_files import ConfigError

if TYPE_CHECKING:
    import socket

    from flintmq.broker.config import BrokerConfig
    from flintmq.store.config import StoreConfig

PORT_ATTEMPTS_MAX: Final = 1000
"""Three ports in a row are rare on a machine where tens of thousands were used a moment ago; to try
takes microseconds."""


def bind_ports(config: BrokerConfig, store_config: StoreConfig) -> list[socket.socket]:
    """Bind the port, that of the fast channel two below it, and the one for slaves.

    That is the one above, unless the settings name another.
    """
    for _ in range(PORT_ATTEMPTS_MAX):
        with contextlib.ExitStack() as stack:
            bound = [_bind_first(config)]
            stack.callback(bound[0].close)
            port = bound[0].getsockname()[1]
            try:
                for other in (port - 2, store_config.ha_listen_port or port + 1):
                    is_free = config.listen_port == 0 and other != store_config.ha_listen_port
                    bound.append(bind(config.bind_address, other, is_free=is_free))
                    stack.callback(bound[-1].close)
            except (BindError, OverflowError):
                if config.listen_port != 0:
                    raise
                continue  # Someone else has a neighbour of the port that the system chose.
            stack.pop_all()
            return bound
    raise BindError(config.bind_address, "no three free ports were found")


def _bind_first(config: BrokerConfig) -> socket.socket:
    try:
        return bind(config.bind_address, config.listen_port)
    except BindError as error:
        if not error.is_foreign or config.bind_address != config.ip1:
            raise
        allowed = "an address of this machine, unless bindAddress says where to listen (0.0.0.0)"
        raise ConfigError("brokerIP1", config.ip1, allowed) from error
