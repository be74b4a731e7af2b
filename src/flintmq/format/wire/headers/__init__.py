"""The headers of requests and answers as typed values, one module per family.

`table.HEADERS` tells which request code has which; `codec` says how fields are declared.
"""

__all__ = [
    "access",
    "admin",
    "clients",
    "codec",
    "namesrv",
    "offsets",
    "pull",
    "query",
    "send",
    "send_back",
    "table",
    "transaction",
]
