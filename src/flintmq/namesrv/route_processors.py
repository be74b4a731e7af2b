"""The processors of a name server; the table that leads to them is at the end."""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import TYPE_CHECKING, Final

from flintmq.errors import FlintError
from flintmq.format.java import crc31
from flintmq.format.wire.bodies.dialect import dumps_body, loads_body
from flintmq.format.wire.bodies.registration import decode_registration
from flintmq.format.wire.bodies.routes import cluster_to_json, route_to_json
from flintmq.format.wire.bodies.topics import version_from_json, version_to_json
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers import namesrv as headers
from flintmq.format.wire.headers.clients import NoFields
from flintmq.model.topic_config import TopicSysFlag
from flintmq.namesrv.kv_config import ORDER_TOPIC_CONFIG, KvConfig, KvConfigError
from flintmq.namesrv.routes import queues_of
from flintmq.remoting import Answer, RefusedError, Request, RequestTable
from flintmq.remoting.request_table import Admission, admit_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from flintmq.format.wire.bodies.registration import Registration
    from flintmq.model.routes import QueueData
    from flintmq.namesrv.config import NamesrvConfig
    from flintmq.namesrv.routes import RouteTable
    from flintmq.settings.live_config import LiveConfig

logger = logging.getLogger(__name__)

SMALL_BODY_SIZE: Final = 16 << 10
"""A registration of so many bytes is read at once: some hundred topics, if it is compressed."""
TOPICS_AT_ONCE_MAX: Final = 1024
"""Topics that are taken in within one turn of the loop; a broker may share it."""
STANDARD_JSON_SINCE: Final = 401
"""Clients from 4.9.4 on read quoted integer names; earlier ones may need them bare."""


def _registration_of(request: Request[headers.RegisterBrokerRequest]) -> Registration:
    """Read what a broker registers; it touches nothing else, so any thread may do it."""
    header = request.header
    if header.body_crc32 not in (0, crc31(request.body)):
        raise RefusedError(ResponseCode.SYSTEM_ERROR, "the CRC of the body does not match")
    return decode_registration(
        request.body, compressed=header.compressed, release=request.command.version
    )


def _read_registration(
    request: Request[headers.RegisterBrokerRequest],
) -> tuple[Registration, dict[str, QueueData]]:
    """Do the same for very many topics, and make ready what is taken in of them."""
    registration = _registration_of(request)
    return registration, queues_of(request.header.broker_name, registration)


class NamesrvProcessors:
    """The processors of one name server, and what they share."""

    def __init__(
        self,
        routes: RouteTable,
        pairs: KvConfig,
        config: LiveConfig[NamesrvConfig],
        now_ms: Callable[[], int],
    ) -> None:
        self.routes = routes
        self.pairs = pairs
        self.config = config
        self.now_ms = now_ms
        self._reading: dict[str, asyncio.Future[None]] = {}
        """The registration of a broker that is being read, by its address; of several the last."""
        self._changing_pairs = asyncio.Lock()

    # -- brokers -----------------------------------------------------------------------------

    def register(
        self, request: Request[headers.RegisterBrokerRequest]
    ) -> Answer | Awaitable[Answer]:
        """Register a broker, or refresh its registration."""
        is_small = len(request.body) <= SMALL_BODY_SIZE
        if is_small and request.header.broker_addr not in self._reading:
            return self._registered(request, _registration_of(request))
        return self._register_large(request)

    async def _register_large(self, request: Request[headers.RegisterBrokerRequest]) -> Answer:
        """Read a registration of thousands of topics in a thread, so that nobody waits for it.

        What one broker sends counts in the order in which it came.
        """
        address, done = request.header.broker_addr, asyncio.get_running_loop().create_future()
        before = self._reading.get(address)
        self._reading[address] = done
        try:
            registration, queues = await asyncio.to_thread(_read_registration, request)
            if before is not None:
                await asyncio.wait([before])
            has_news = self.routes.has_news(request.header, registration)
            answer = self._registered(request, registration, {})
            if has_news:
                await self._put_queues(request.header, queues)
            return answer
        finally:
            done.set_result(None)
            if self._reading.get(address) is done:
                del self._reading[address]

    async def _put_queues(
        self, header: headers.RegisterBrokerRequest, queues: Mapping[str, QueueData]
    ) -> None:
        """Take in the topics of a broker, some in each turn of the loop, while it is there."""
        topics = iter(queues.items())
        while some := dict(itertools.islice(topics, TOPICS_AT_ONCE_MAX)):
            if self.routes.version_of(header.broker_addr) is None:
                return
            self.routes.put_queues(header.broker_name, some)
            await asyncio.sleep(0)

    def _registered(
        self,
        request: Request[headers.RegisterBrokerRequest],
        registration: Registration,
        queues: Mapping[str, QueueData] | None = None,
    ) -> Answer:
        header = request.header
        known = self.routes.version_of(header.broker_addr) is not None
        found = self.routes.register(
            header, registration, request.connection, self.now_ms(), queues=queues
        )
        if not known:
            logger.info("broker registered: name=%s at=%s", header.broker_name, header.broker_addr)
        answer = headers.RegisterBrokerResponse(
            ha_server_addr=found.ha_address, master_addr=found.master_address
        )
        order = self.pairs.pairs(ORDER_TOPIC_CONFIG)
        return Answer(header=answer, parts=[dumps_body({"table": order})] if order else ())

    def unregister(self, request: Request[headers.UnregisterBrokerRequest]) -> Answer:
        """Remove a broker."""
        header = request.header
        self.routes.unregister(header.broker_name, header.broker_id, header.broker_addr)
        logger.info("broker unregistered: name=%s at=%s", header.broker_name, header.broker_addr)
        return Answer()

    def data_version(self, request: Request[headers.QueryDataVersionRequest]) -> Answer:
        """Tell a broker whether it has to register."""
        address = request.header.broker_addr
        version = version_from_json(loads_body(request.body) if request.body else None)
        changed = self.routes.has_changed(address, version)
        if not changed:
            self.routes.touch(address, self.now_ms())
        known = self.routes.version_of(address)
        parts = [] if known is None else [dumps_body(version_to_json(known))]
        return Answer(header=headers.QueryDataVersionResponse(changed=changed), parts=parts)

    # -- routes ------------------------------------------------------------------------------

    def route(self, request: Request[headers.RouteRequest]) -> Answer:
        """Tell where a topic is."""
        topic = request.header.topic
        route = self.routes.route(topic)
        if route is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic}",
            )
        members = route_to_json(route)
        if self.config.current.order_message_enable:
            members["orderTopicConf"] = self.pairs.get(ORDER_TOPIC_CONFIG, topic)
        standard = (
            request.header.accept_standard_json_only is True
            or request.command.version >= STANDARD_JSON_SINCE
        )
        return Answer(parts=[dumps_body(members, standard=standard)])

    def cluster_info(self, request: Request[NoFields]) -> Answer:
        """Tell all brokers."""
        return Answer(parts=[dumps_body(cluster_to_json(self.routes.cluster_info()))])

    def all_topics(self, request: Request[NoFields]) -> Answer:
        """Tell the names of all topics."""
        return _topic_list(self.routes.topics())

    def topics_of_cluster(self, request: Request[headers.ClusterRequest]) -> Answer:
        """Tell the topics of a cluster."""
        return _topic_list(self.routes.topics_of_cluster(request.header.cluster))

    def system_topics(self, request: Request[NoFields]) -> Answer:
        """Tell the topics named after clusters and brokers, and a broker that knows the others."""
        address = self.routes.any_address()
        return Answer(parts=[dumps_body({"brokerAddr": address, "topicList": self.routes.names()})])

    def unit_topics(self, request: Request[NoFields]) -> Answer:
        """Tell the topics of units."""
        return _topic_list(self.routes.topics_where(lambda flag: TopicSysFlag.UNIT in flag))

    def unit_sub_topics(self, request: Request[NoFields]) -> Answer:
        """Tell the topics that units subscribe to."""
        return _topic_list(self.routes.topics_where(lambda flag: TopicSysFlag.UNIT_SUB in flag))

    def unit_sub_only_topics(self, request: Request[NoFields]) -> Answer:
        """Tell the topics that units subscribe to without being of a unit."""
        return _topic_list(self.routes.topics_where(lambda flag: flag == TopicSysFlag.UNIT_SUB))

    def delete_topic(self, request: Request[headers.DeleteTopicInNamesrvRequest]) -> Answer:
        """Remove a topic from the routes."""
        self.routes.delete_topic(request.header.topic, request.header.cluster_name)
        return Answer()

    def wipe_write_perm(self, request: Request[headers.WritePermRequest]) -> Answer:
        """Let nobody send to a broker."""
        count = self.routes.wipe_write_perm(request.header.broker_name)
        return Answer(header=headers.WipeWritePermResponse(wipe_topic_count=count))

    def add_write_perm(self, request: Request[headers.WritePermRequest]) -> Answer:
        """Let everybody send to a broker."""
        count = self.routes.add_write_perm(request.header.broker_name)
        return Answer(header=headers.AddWritePermResponse(add_topic_count=count))

    # -- pairs -------------------------------------------------------------------------------

    async def put_pair(self, request: Request[headers.PutKvConfigRequest]) -> Answer:
        """Set a pair."""
        header = request.header
        return await self._change_pairs(self.pairs.put, header.namespace, header.key, header.value)

    async def _change_pairs(self, change: Callable[..., None], *texts: str) -> Answer:
        """Change pairs in a thread, which waits for the disk, one change at a time."""
        try:
            async with self._changing_pairs:
                await asyncio.to_thread(change, *texts)
        except KvConfigError as error:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return Answer()

    def get_pair(self, request: Request[headers.KvConfigRequest]) -> Answer:
        """Tell the value of a pair."""
        header = request.header
        value = self.pairs.get(header.namespace, header.key)
        if value is None:
            raise RefusedError(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        return Answer(header=headers.KvConfigResponse(value=value))

    async def delete_pair(self, request: Request[headers.KvConfigRequest]) -> Answer:
        """Remove a pair."""
        return await self._change_pairs(
            self.pairs.delete, request.header.namespace, request.header.key
        )

    def list_pairs(self, request: Request[headers.KvNamespaceRequest]) -> Answer:
        """Tell all pairs of a namespace."""
        pairs = self.pairs.pairs(request.header.namespace)
        if pairs is None:
            remark = f"No config item, Namespace: {request.header.namespace}"
            raise RefusedError(ResponseCode.QUERY_NOT_FOUND, remark)
        return Answer(parts=[dumps_body({"table": pairs})])

    # -- settings ----------------------------------------------------------------------------

    def get_config(self, request: Request[NoFields]) -> Answer:
        """Tell the settings."""
        lines = "".join(f"{key}={value}\n" for key, value in self.config.shown().items())
        return Answer(parts=[lines.encode()])

    def update_config(self, request: Request[NoFields]) -> Answer:
        """Change settings that may be changed."""
        try:
            self.config.update(request.body)
        except FlintError as error:
            raise RefusedError(ResponseCode.NO_PERMISSION, str(error)) from error
        return Answer()


def _topic_list(topics: list[str]) -> Answer:
    return Answer(parts=[dumps_body({"topicList": topics})])


def request_table(own: NamesrvProcessors, *, admit: Admission = admit_all) -> RequestTable:
    """Return who handles the requests of a name server, by their codes."""
    return RequestTable(
        {
            RequestCode.REGISTER_BROKER: own.register,
            RequestCode.UNREGISTER_BROKER: own.unregister,
            RequestCode.QUERY_DATA_VERSION: own.data_version,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: own.route,
            RequestCode.GET_BROKER_CLUSTER_INFO: own.cluster_info,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: own.all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: own.topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: own.system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: own.unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: own.unit_sub_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: own.unit_sub_only_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: own.delete_topic,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: own.wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: own.add_write_perm,
            RequestCode.PUT_KV_CONFIG: own.put_pair,
            RequestCode.GET_KV_CONFIG: own.get_pair,
            RequestCode.DELETE_KV_CONFIG: own.delete_pair,
            RequestCode.GET_KVLIST_BY_NAMESPACE: own.list_pairs,
            RequestCode.GET_NAMESRV_CONFIG: own.get_config,
            RequestCode.UPDATE_NAMESRV_CONFIG: own.update_config,
        },
        admit=admit,
    )
