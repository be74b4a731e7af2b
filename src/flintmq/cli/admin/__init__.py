"""``flintmq admin``: the administration of clusters as commands."""

__all__ = ["admin_group", "command_frame", "command_report", "rendering"]
