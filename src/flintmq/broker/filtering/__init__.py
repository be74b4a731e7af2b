"""Choosing messages: by the hash of their tags, or by SQL92 over their properties."""

__all__ = ["pull_filter", "sql_filter", "tag_filter"]
