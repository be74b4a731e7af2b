"""An old master comes back as a slave: what its new master lacks is shown, and set aside."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from flintmq.broker.failover.log_compare import MasterStream, common_end
from flintmq.broker.failover.name_server_look import FailoverError, registered_master
from flintmq.broker.own_requests import own_requests
from flintmq.broker.replication.master_link import MasterRange
from flintmq.format.host import parse_address
from flintmq.format.stored.record import Blank, check_record
from flintmq.format.wire.bodies.dialect import BodyError, Members, loads_body
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.remoting import RemotingClient
from flintmq.remoting.tls_setup import outgoing_tls
from flintmq.store.config import BrokerRole
from flintmq.store.log_cut import cut_log
from flintmq.store.message_store import MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from flintmq.broker.config import BrokerConfig
    from flintmq.format.wire.command import Command
    from flintmq.remoting.tls_files import WatchedContext
    from flintmq.store.config import StoreConfig

TIMEOUT_MS: Final = 5000


@dataclass(slots=True)
class Surplus:
    """What a log has that its master lacks."""

    begin: int
    end: int
    messages: Counter[str] = field(default_factory=Counter)
    """Messages by topic."""
    first_ms: int = 0
    last_ms: int = 0

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class NewMaster:
    """The master that a broker joins as a slave."""

    address: str
    ha_address: str
    log: MasterRange
    stream_tls: WatchedContext | None = None
    """How its stream is read where it is one by TLS."""


async def find_master(
    broker: BrokerConfig,
    store: StoreConfig,
    *,
    sign: Callable[[Command], None] | None = None,
) -> NewMaster:
    """Ask name servers for the master of this broker's group, and the master for its log.

    ``sign`` signs the requests where the broker has no account for that.
    """
    tls = outgoing_tls(broker, use_tls=broker.use_tls)
    prepare = own_requests(broker, sign=sign)
    address = await registered_master(
        broker.namesrv_addresses, broker.name, tls=tls, prepare=prepare
    )
    if address is None:
        raise FailoverError(f"no name server knows a master of {broker.name}")
    async with RemotingClient(tls=tls, prepare=prepare) as client:
        answer = await client.call(
            address, RequestCode.GET_BROKER_RUNTIME_INFO, timeout_ms=TIMEOUT_MS
        )
        if answer.code != ResponseCode.SUCCESS:
            raise FailoverError(f"the master answers with {answer.code}: {answer.remark}")
        table = Members(loads_body(answer.body), "runtime info").table("table")
    try:
        start, end = int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])
        host, port = parse_address(address)
        # A Java master does not tell, but has it always above its own port.
        ha_port = int(table.get("haListenPort", port + 1))
    except (KeyError, TypeError, ValueError) as error:
        raise BodyError("runtime info without the range of the log") from error
    ha_address = store.ha_master_address or f"{host}:{ha_port}"
    return NewMaster(
        address,
        ha_address,
        MasterRange(max(start, 0), max(end, 0)),
        outgoing_tls(broker, use_tls=True) if broker.ha_use_tls else None,
    )


class Rejoining:
    """A stopped broker that is about to follow another one.  Use `opened`."""

    def __init__(self, store: MessageStore, master: NewMaster) -> None:
        self._store = store
        self._master = master

    @classmethod
    @contextmanager
    def opened(cls, config: StoreConfig, master: NewMaster) -> Iterator[Rejoining]:
        """Open the store, which no broker may have open."""
        as_slave = replace(config, broker_role=BrokerRole.SLAVE, broker_id=config.broker_id or 1)
        with MessageStore.open(as_slave, background=False) as store:
            yield cls(store, master)

    async def surplus(self) -> Surplus:
        """Compare the logs and return what the own one has beyond the master's."""
        log = self._store.log
        if log.min_offset < log.end_offset <= self._master.log.start:
            raise FailoverError(
                f"the log ends at {log.end_offset}, and the master at {self._master.address} has "
                f"deleted all before {self._master.log.start}: nothing can be compared. As a slave "
                f"this broker would drop all it has; keep what {self._store.config.root} has "
                f"(flintmq store dump shows it), and begin with an empty directory"
            )
        stream = MasterStream(self._master.ha_address, self._master.stream_tls)
        begin = await common_end(log, self._master.log, stream)
        found = Surplus(begin, log.end_offset)
        for file in log.files_from(begin):
            at = max(begin, file.first_offset)
            while at < file.first_offset + file.wrote:
                record = check_record(
                    file.view,
                    at - file.first_offset,
                    file.size,
                    check_crc=False,
                    expected_offset=at,
                )
                if isinstance(record, Blank):
                    break
                found.messages[record.topic.decode()] += 1
                found.first_ms = found.first_ms or record.store_timestamp
                found.last_ms = record.store_timestamp
                at += record.size
        return found

    def cut(self, surplus: Surplus) -> list[Path]:
        """Set the surplus aside in files and end the log before it; return the files."""
        facts = {
            "reason": f"not in the log of the master at {self._master.address}",
            "records": surplus.messages.total(),
            "time": self._store.clock.now_ms(),
        }
        return cut_log(self._store, surplus.begin, facts)
