"""A slave is made the master of its group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.failover.name_server_look import FailoverError, registered_master
from flintmq.broker.own_requests import own_requests
from flintmq.remoting.tls_setup import outgoing_tls
from flintmq.store.config import BrokerRole
from flintmq.store.files.local_files import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.broker.config import BrokerConfig
    from flintmq.format.wire.command import Command
    from flintmq.store.config import StoreConfig


async def check_promotion(
    broker: BrokerConfig,
    store: StoreConfig,
    *,
    asks: bool = True,
    sign: Callable[[Command], None] | None = None,
) -> None:
    """Raise FailoverError if this broker cannot be made a master now.

    It has to be a slave that does not run, and no name server may know a master of its group:
    two masters would give one queue offset to two messages.  Without ``asks`` the operator vouches
    for that.  ``sign`` counts where the broker has no account.
    """
    if store.broker_role is not BrokerRole.SLAVE:
        raise FailoverError(f"{broker.name} is no slave: brokerRole is {store.broker_role.value}")
    # Who can have the lock runs no broker here.
    LocalFiles().lock(store.root / "lock").release()
    if not asks:
        return
    tls = outgoing_tls(broker, use_tls=broker.use_tls)
    prepare = own_requests(broker, sign=sign)
    master = await registered_master(
        broker.namesrv_addresses, broker.name, tls=tls, prepare=prepare
    )
    if master is not None:
        raise FailoverError(
            f"{broker.name} has a master at {master}; stop it first, and see that it stays down"
        )


def promoted(role: BrokerRole) -> dict[str, str]:
    """Return the settings of a slave that becomes a master."""
    return {"brokerRole": role.value, "brokerId": "0"}
