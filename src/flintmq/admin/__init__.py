"""The administration of clusters: `AsyncAdmin` and `Admin`, one module per family of operations."""

from __future__ import annotations

from flintmq.admin.admin_errors import AdminError, MissingError
from flintmq.admin.async_admin import AsyncAdmin
from flintmq.admin.blocking_admin import Admin
from flintmq.admin.changes import AdminChange, ChangeOutcome

__all__ = [
    "Admin",
    "AdminChange",
    "AdminError",
    "AsyncAdmin",
    "ChangeOutcome",
    "MissingError",
    "account_admin",
    "admin_base",
    "admin_errors",
    "async_admin",
    "benchmarks",
    "changes",
    "dead_letter_admin",
    "diagnosis",
    "doctor_admin",
    "doctor_checks",
    "export_admin",
    "group_admin",
    "lag_admin",
    "member_admin",
    "message_admin",
    "namesrv_admin",
    "offset_admin",
    "probe_admin",
    "scan_admin",
    "server_admin",
    "statistics_admin",
    "topic_admin",
    "topic_tail",
    "trace_admin",
]
