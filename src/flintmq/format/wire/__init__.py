"""The bytes of remoting: frames, commands, headers, bodies, codes."""

__all__ = [
    "bodies",
    "codes",
    "command",
    "frame",
    "ha_stream",
    "headers",
    "name_limits",
    "remoting_errors",
    "signature",
]
