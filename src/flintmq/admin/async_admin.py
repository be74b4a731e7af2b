"""The administration of a cluster, all families of operations together."""

from __future__ import annotations

from flintmq.admin.account_admin import AccountAdmin
from flintmq.admin.doctor_admin import DoctorAdmin
from flintmq.admin.namesrv_admin import NamesrvAdmin


class AsyncAdmin(DoctorAdmin, NamesrvAdmin, AccountAdmin):
    """Operations on a cluster of FlintMQ or RocketMQ 4.x; use it as an async context manager.

    It finds the cluster as producers and consumers do: by ``namesrv``, or by NAMESRV_ADDR of the
    environment.  Operations that change something take ``dry_run``, and return what they changed
    as `AdminChange` objects, one for each server.
    """
