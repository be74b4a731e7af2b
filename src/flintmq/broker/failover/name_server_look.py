"""What name servers know of a broker group before somebody changes its roles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.errors import FlintError
from flintmq.format.wire.bodies.dialect import Members, loads_body
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.remoting import RemotingClient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flintmq.format.wire.command import Command
    from flintmq.remoting.tls_files import WatchedContext

TIMEOUT_MS: Final = 5000
MASTER_ID: Final = "0"


class FailoverError(FlintError):
    """Roles cannot be changed as things are."""


async def registered_master(
    namesrvs: Sequence[str],
    broker_name: str,
    *,
    tls: WatchedContext | None = None,
    prepare: Callable[[Command], None] | None = None,
) -> str | None:
    """Return the address of the master of a group, None if no name server has one.

    Every name server has to answer: one that is not asked may be the one that knows.  ``prepare``
    finishes the requests, which a name server with access control wants to be signed.
    """
    if not namesrvs:
        raise FailoverError("no name server is known: namesrvAddr is not set, and -n not given")
    found = None
    async with RemotingClient(tls=tls, prepare=prepare) as client:
        for namesrv in namesrvs:
            try:
                answer = await client.call(
                    namesrv, RequestCode.GET_BROKER_CLUSTER_INFO, timeout_ms=TIMEOUT_MS
                )
                if answer.code != ResponseCode.SUCCESS:
                    raise FailoverError(f"code {answer.code}: {answer.remark}")
                table = Members(loads_body(answer.body), "the brokers").table("brokerAddrTable")
            except FlintError as error:
                raise FailoverError(f"name server {namesrv} does not answer: {error}") from error
            group = table.get(broker_name)
            if group is not None:
                addresses = Members(group, "a broker").table("brokerAddrs")
                master = {str(key): value for key, value in addresses.items()}.get(MASTER_ID)
                found = found or (None if master is None else str(master))
    return found
