"""The client: producers and consumers for any RocketMQ 4.x cluster, async first."""

__all__ = [
    "assigning",
    "blocking",
    "client_tls",
    "consuming",
    "errors",
    "instance",
    "loop_thread",
    "messaging",
    "options",
    "options_file",
    "producing",
    "pulling",
    "routing",
    "wall_clock",
]
