"""What tests of live archives compare: messages as a cluster gives them, and as another does."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flintmq.format.stored.pulled_records import decode_records
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.query import QueryMessageRequest
from flintmq.model.message_queue import MessageQueue
from flintmq.spark.live.cluster import Cluster
from flintmq.spark.live.cluster_options import ClusterConnection
from flintmq.spark.live.live_options import parse_batch
from flintmq.spark.live.live_session import LiveSession
from flintmq.testing import EmbeddedCluster
from tests.kits.spark.live_kit import Row, read

_MOVED = ("physicalOffset", "offsetMsgId")
_TIME_MAX = 1 << 62


def without_place(rows: list[Row]) -> list[Row]:
    """Return rows without what a record's place in the log decides, by queue and offset."""
    found = [{name: value for name, value in row.items() if name not in _MOVED} for row in rows]
    return sorted(found, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))


def rows_of(namesrv: str, broker: str, *topics: str) -> list[Row]:
    """Return the messages that one broker gives."""
    rows = read(namesrv, subscribe=",".join(topics))
    return without_place([row for row in rows if row["brokerName"] == broker])


def bounds_of(namesrv: str, topic: str) -> dict[MessageQueue, tuple[int, int]]:
    """Return where the queues of a topic begin and end."""
    options = parse_batch({"namesrv": namesrv, "subscribe": topic})
    with LiveSession(options.connection) as session:
        cluster = Cluster(session.client, options)
        queues = session.run(cluster.queues())
        begins, ends = session.run(cluster.begins(queues)), session.run(cluster.ends(queues))
    return {queue: (begins[queue], ends[queue]) for queue in queues}


def found_by_key(namesrv: str, topic: str, key: str) -> list[bytes]:
    """Return the bodies that the brokers of a topic find by a key."""
    header = QueryMessageRequest(
        topic=topic, key=key, max_num=32, begin_timestamp=0, end_timestamp=_TIME_MAX
    )
    with LiveSession(ClusterConnection(namesrv=namesrv)) as session:
        session.run(session.client.routes.fetch(topic))
        found: list[bytes] = []
        for address in session.client.routes.all_addresses(masters_only=True):
            call = session.client.call(address, RequestCode.QUERY_MESSAGE, header)
            found += [bytes(record.body) for record in decode_records(session.run(call).body)]
    return sorted(found)


@contextmanager
def serving(root: Path, broker: str, **settings: Any) -> Iterator[EmbeddedCluster]:
    """Have a broker serve the store in ``root``/store, under its old name."""
    with EmbeddedCluster(root=root, brokerName=broker, **settings) as cluster:
        yield cluster
