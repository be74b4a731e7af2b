"""The administration of a cluster, all families of operations together."""

from __future__ import annotations

from flintmq.admin.account_admin import AccountAdmin
from flintmq.admin.namesrv_admin import NamesrvAdmin
from flintmq.admin.offset_admin import OffsetAdmin
from flintmq.admin.server_admin import ServerAdmin
from flintmq.admin.topic_admin import TopicAdmin


class AsyncAdmin(TopicAdmin, ServerAdmin, OffsetAdmin, NamesrvAdmin, AccountAdmin):
    """Operations on a cluster of FlintMQ or RocketMQ 4.x; use it as an async context manager.

    It finds the cluster as producers and consumers do: by ``namesrv``, or by NAMESRV_ADDR of the
    environment.  Operations that change something take ``dry_run``, and return what they changed
    as `AdminChange` objects, one for each server.
    """
