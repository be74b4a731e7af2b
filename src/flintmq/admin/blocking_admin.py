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
