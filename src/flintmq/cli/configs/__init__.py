"""``flintmq config``: files of settings looked at without starting anything."""

__all__ = ["config_commands"]
