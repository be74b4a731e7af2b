"""What commands print: text, tables, JSON, progress."""

__all__ = [
    "console",
    "findings_output",
    "json_output",
    "progress",
    "text",
    "verify_text",
]
