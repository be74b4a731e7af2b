"""Named contexts: which cluster a command speaks to, and with whose keys."""

__all__ = ["context_commands", "context_file"]
