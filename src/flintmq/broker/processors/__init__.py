"""What a broker does for each request, one module per family; `table` leads to them."""

__all__ = [
    "runtime_info",
    "table",
]
