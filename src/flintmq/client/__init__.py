"""The client: producers and consumers for any RocketMQ 4.x cluster, async first."""

__all__ = [
    "assigning",
    "blocking",
    "client_tls",
    "client_user",
    "closing_time",
    "consuming",
    "errors",
    "instance",
    "keywords",
    "loop_thread",
    "messaging",
    "options",
    "options_file",
    "producing",
    "pulling",
    "routing",
    "searching",
    "wall_clock",
]
