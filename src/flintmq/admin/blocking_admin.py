"""The blocking face of the administration."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from flintmq.admin.async_admin import AsyncAdmin
from flintmq.client.loop_thread import InThread

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from flintmq.client.options import ClientKeywords, ClientOptions

_T = TypeVar("_T")
_P = ParamSpec("_P")


def _blocking(
    method: Callable[Concatenate[AsyncAdmin, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[Admin, _P], _T]:
    """Return a method that runs a coroutine method of the admin in its thread."""

    @functools.wraps(method)
    def call(self: Admin, /, *arguments: _P.args, **keywords: _P.kwargs) -> _T:
        return self._await(method, *arguments, **keywords)

    return call


class Admin(InThread[AsyncAdmin]):
    """`AsyncAdmin` for code without asyncio: the same operations, with the same parameters."""

    _noun = "admin"
    _reopens_after_fork = True

    def __init__(
        self, *, options: ClientOptions | None = None, **keywords: Unpack[ClientKeywords]
    ) -> None:
        AsyncAdmin(options=options, **keywords)
        super().__init__(lambda: AsyncAdmin(options=options, **keywords))

    # Brokers
    runtime_info = _blocking(AsyncAdmin.runtime_info)
    settings_of = _blocking(AsyncAdmin.settings_of)
    broker_summaries = _blocking(AsyncAdmin.broker_summaries)
    broker_status = _blocking(AsyncAdmin.broker_status)
    broker_config = _blocking(AsyncAdmin.broker_config)
    update_broker_config = _blocking(AsyncAdmin.update_broker_config)
    clean_expired_queues = _blocking(AsyncAdmin.clean_expired_queues)
    clean_unused_topics = _blocking(AsyncAdmin.clean_unused_topics)
    delete_expired_log = _blocking(AsyncAdmin.delete_expired_log)
    # Places
    cluster_info = _blocking(AsyncAdmin.cluster_info)
    all_places = _blocking(AsyncAdmin.all_places)
    places = _blocking(AsyncAdmin.places)
    # Topics
    topics = _blocking(AsyncAdmin.topics)
    topic_status_by_broker = _blocking(AsyncAdmin.topic_status_by_broker)
    topic_uses = _blocking(AsyncAdmin.topic_uses)
    topic_route = _blocking(AsyncAdmin.topic_route)
    topic_places = _blocking(AsyncAdmin.topic_places)
    topic_configs = _blocking(AsyncAdmin.topic_configs)
    topic_status = _blocking(AsyncAdmin.topic_status)
    groups_of_topic = _blocking(AsyncAdmin.groups_of_topic)
    clusters_of_topic = _blocking(AsyncAdmin.clusters_of_topic)
    share_queues = _blocking(AsyncAdmin.share_queues)
    put_topic = _blocking(AsyncAdmin.put_topic)
    set_topic_permission = _blocking(AsyncAdmin.set_topic_permission)
    delete_topic = _blocking(AsyncAdmin.delete_topic)
    order_configuration = _blocking(AsyncAdmin.order_configuration)
    put_order_configuration = _blocking(AsyncAdmin.put_order_configuration)
    delete_order_configuration = _blocking(AsyncAdmin.delete_order_configuration)
    # Groups and their members
    group_configs = _blocking(AsyncAdmin.group_configs)
    group_config = _blocking(AsyncAdmin.group_config)
    put_group = _blocking(AsyncAdmin.put_group)
    delete_group = _blocking(AsyncAdmin.delete_group)
    delete_own_topics = _blocking(AsyncAdmin.delete_own_topics)
    group_places = _blocking(AsyncAdmin.group_places)
    consumer_members = _blocking(AsyncAdmin.consumer_members)
    running_consumer = _blocking(AsyncAdmin.running_consumer)
    running_consumers = _blocking(AsyncAdmin.running_consumers)
    producer_clients = _blocking(AsyncAdmin.producer_clients)
    producers_of = _blocking(AsyncAdmin.producers_of)
    # How far groups have come
    groups = _blocking(AsyncAdmin.groups)
    group_progress = _blocking(AsyncAdmin.group_progress)
    group_summaries = _blocking(AsyncAdmin.group_summaries)
    broker_lags = _blocking(AsyncAdmin.broker_lags)
    lags = _blocking(AsyncAdmin.lags)
    all_lags = _blocking(AsyncAdmin.all_lags)
    watched_groups = _blocking(AsyncAdmin.watched_groups)
    reset_offsets = _blocking(AsyncAdmin.reset_offsets)
    clone_offsets = _blocking(AsyncAdmin.clone_offsets)
    # Name servers
    namesrv_config = _blocking(AsyncAdmin.namesrv_config)
    update_namesrv_config = _blocking(AsyncAdmin.update_namesrv_config)
    put_pair = _blocking(AsyncAdmin.put_pair)
    delete_pair = _blocking(AsyncAdmin.delete_pair)
    wipe_write_permission = _blocking(AsyncAdmin.wipe_write_permission)
    add_write_permission = _blocking(AsyncAdmin.add_write_permission)
    # Access control
    put_account = _blocking(AsyncAdmin.put_account)
    delete_account = _blocking(AsyncAdmin.delete_account)
    put_white_addresses = _blocking(AsyncAdmin.put_white_addresses)
    access_versions = _blocking(AsyncAdmin.access_versions)
    # Messages
    message_by_id = _blocking(AsyncAdmin.message_by_id)
    messages_by_key = _blocking(AsyncAdmin.messages_by_key)
    message_by_unique_id = _blocking(AsyncAdmin.message_by_unique_id)
    message_at = _blocking(AsyncAdmin.message_at)
    track = _blocking(AsyncAdmin.track)
    push_message = _blocking(AsyncAdmin.push_message)
    push_messages = _blocking(AsyncAdmin.push_messages)
    resend_messages = _blocking(AsyncAdmin.resend_messages)
    send_message = _blocking(AsyncAdmin.send_message)
    scan = _blocking(AsyncAdmin.scan)
    queue_units = _blocking(AsyncAdmin.queue_units)
    message_trace = _blocking(AsyncAdmin.message_trace)
    dead_letters = _blocking(AsyncAdmin.dead_letters)
    scan_dead_letters = _blocking(AsyncAdmin.scan_dead_letters)
    replay_dead_letters = _blocking(AsyncAdmin.replay_dead_letters)
    # Statistics, probes, exports
    broker_counter = _blocking(AsyncAdmin.broker_counter)
    topic_statistics = _blocking(AsyncAdmin.topic_statistics)
    probe_topic = _blocking(AsyncAdmin.probe_topic)
    probe_broker = _blocking(AsyncAdmin.probe_broker)
    probe_cluster = _blocking(AsyncAdmin.probe_cluster)
    own_topics = _blocking(AsyncAdmin.own_topics)
    own_groups = _blocking(AsyncAdmin.own_groups)
    export_metadata = _blocking(AsyncAdmin.export_metadata)
    export_configs = _blocking(AsyncAdmin.export_configs)
    export_metrics = _blocking(AsyncAdmin.export_metrics)
    copy_configuration = _blocking(AsyncAdmin.copy_configuration)
    # The doctor
    diagnose = _blocking(AsyncAdmin.diagnose)
    picture = _blocking(AsyncAdmin.picture)
