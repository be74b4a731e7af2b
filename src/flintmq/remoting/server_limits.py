"""What the settings of a server say about its limits."""

from flintmq.remoting.limits import Limits
from flintmq.settings.server_settings import ServerSettings


def server_limits(settings: ServerSettings) -> Limits:
    """Return the limits of a server."""
    return Limits(
        idle_timeout_ms=settings.idle_timeout_s * 1000,
        backlog=settings.server_backlog,
        connection_count_max=settings.connection_count_max,
        address_connection_count_max=settings.address_connection_count_max or None,
        unread_answers_pause_size=settings.unread_answers_size_max // 2,
        unread_answers_size_max=settings.unread_answers_size_max,
        half_frames_size_max=settings.half_frames_size_max,
    )
