"""What commands print: text, tables, JSON, progress."""

__all__ = [
    "console",
    "findings_output",
    "json_output",
    "plain_table",
    "plain_values",
    "progress",
    "text",
    "verify_text",
]
