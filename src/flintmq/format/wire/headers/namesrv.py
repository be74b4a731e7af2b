"""Headers of the name server: registration, routes, key-value pairs."""

from flintmq.format.wire.headers.codec import Header, Int32, Int64, header


@header
class RegisterBrokerRequest(Header):
    """Announces a broker and, in its body, its topics."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    compressed: bool = False
    body_crc32: Int32 = 0


@header
class RegisterBrokerResponse(Header):
    """Tells a slave where its master is."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@header
class UnregisterBrokerRequest(Header):
    """Takes a broker out of all routes."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@header
class QueryDataVersionRequest(Header):
    """Asks whether the name server knows a broker's present topics."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@header
class QueryDataVersionResponse(Header):
    """Whether a registration is needed."""

    changed: bool


@header
class RouteRequest(Header):
    """Asks for the route of a topic."""

    topic: str
    accept_standard_json_only: bool | None = None


@header
class PutKvConfigRequest(Header):
    """Sets a pair."""

    namespace: str
    key: str
    value: str


@header
class KvConfigRequest(Header):
    """Asks for a pair, or deletes it."""

    namespace: str
    key: str


@header
class KvConfigResponse(Header):
    """The value of a pair."""

    value: str | None = None


@header
class KvNamespaceRequest(Header):
    """Asks for all pairs of a namespace."""

    namespace: str


@header
class WritePermRequest(Header):
    """Takes the write permission from the topics of a broker, or gives it back."""

    broker_name: str


@header
class WipeWritePermResponse(Header):
    """How many topics lost the permission."""

    wipe_topic_count: Int32


@header
class AddWritePermResponse(Header):
    """How many topics got the permission."""

    add_topic_count: Int32


@header
class DeleteTopicInNamesrvRequest(Header):
    """Takes a topic out of the routes, of one cluster if one is named."""

    topic: str
    cluster_name: str | None = None


@header
class ClusterRequest(Header):
    """Asks for the topics of a cluster."""

    cluster: str
