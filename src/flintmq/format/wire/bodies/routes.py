"""Routes and clusters in JSON, as a name server tells them."""

from typing import Any

from flintmq.format.wire.bodies.dialect import BodyError, Members
from flintmq.model.routes import BrokerData, ClusterInfo, QueueData, TopicRoute


def route_to_json(route: TopicRoute) -> dict[str, Any]:
    """Return the JSON members of a route."""
    return {
        "brokerDatas": [broker_to_json(broker) for broker in route.brokers],
        "filterServerTable": {
            address: list(servers) for address, servers in route.filter_servers.items()
        },
        "orderTopicConf": route.order_topic_conf,
        "queueDatas": [
            {
                "brokerName": queue.broker_name,
                "perm": int(queue.perm),
                "readQueueNums": queue.read_queue_count,
                "topicSysFlag": queue.topic_sys_flag,
                "writeQueueNums": queue.write_queue_count,
            }
            for queue in route.queues
        ],
    }


def route_from_json(value: Any) -> TopicRoute:
    """Return the route that JSON members describe."""
    members = Members(value, "a route")
    order = members.get("orderTopicConf")
    return TopicRoute(
        queues=tuple(map(_queue_from_json, members.items("queueDatas"))),
        brokers=tuple(map(broker_from_json, members.items("brokerDatas"))),
        order_topic_conf=None if order is None else str(order),
    )


def _queue_from_json(value: Any) -> QueueData:
    members = Members(value, "the queues of a route")
    # Name servers up to 4.8 spell it so.
    flag = members.integer("topicSynFlag", 0)
    return QueueData(
        broker_name=members.text("brokerName"),
        read_queue_count=members.integer("readQueueNums", 0),
        write_queue_count=members.integer("writeQueueNums", 0),
        perm=members.integer("perm", 0),
        topic_sys_flag=members.integer("topicSysFlag", flag),
    )


def broker_to_json(broker: BrokerData) -> dict[str, Any]:
    """Return the JSON members of a broker with its addresses."""
    return {
        "brokerAddrs": dict(broker.addresses),
        "brokerName": broker.broker_name,
        "cluster": broker.cluster,
    }


def broker_from_json(value: Any) -> BrokerData:
    """Return the broker that JSON members describe; its ids may be quoted or bare."""
    members = Members(value, "a broker")
    addresses: dict[int, str] = {}
    for broker_id, address in members.table("brokerAddrs").items():
        try:
            addresses[int(broker_id)] = str(address)
        except ValueError:
            raise BodyError(f"a broker: no broker id: {broker_id!r}") from None
    return BrokerData(
        cluster=members.text("cluster", ""),
        broker_name=members.text("brokerName"),
        addresses=addresses,
    )


def cluster_to_json(info: ClusterInfo) -> dict[str, Any]:
    """Return the JSON members of all brokers and clusters."""
    return {
        "brokerAddrTable": {name: broker_to_json(one) for name, one in info.brokers.items()},
        "clusterAddrTable": {name: list(brokers) for name, brokers in info.clusters.items()},
    }


def cluster_from_json(value: Any) -> ClusterInfo:
    """Return the brokers and clusters that JSON members describe."""
    members = Members(value, "a cluster")
    brokers = members.table("brokerAddrTable").items()
    clusters = members.table("clusterAddrTable").items()
    return ClusterInfo(
        brokers={str(name): broker_from_json(broker) for name, broker in brokers},
        clusters={str(name): tuple(map(str, names)) for name, names in clusters},
    )
