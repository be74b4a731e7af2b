"""What the settings of a server say about its limits."""

from flintmq.format.wire.frame import FRAME_SIZE_MAX
from flintmq.remoting.limits import Limits
from flintmq.settings.server_settings import ServerSettings


def server_limits(settings: ServerSettings) -> Limits:
    """Return the limits of a server."""
    # What one peer is sent at once, with an answer of the largest size, fits below what all have.
    pause_size = min(settings.peer_unread_answers_size, settings.unread_answers_size_max // 8)
    return Limits(
        idle_timeout_ms=settings.idle_timeout_s * 1000,
        backlog=settings.server_backlog,
        connection_count_max=settings.connection_count_max,
        address_connection_count_max=settings.address_connection_count_max or None,
        unread_answers_pause_size=settings.unread_answers_size_max // 2,
        unread_answers_size_max=settings.unread_answers_size_max,
        write_pause_size=pause_size,
        write_drop_size=max(16 * pause_size, 2 * FRAME_SIZE_MAX + 1),
        request_bytes_max=settings.request_bytes_max,
        peer_request_bytes_max=settings.peer_request_bytes_max,
        half_frames_size_max=settings.half_frames_size_max,
        active_wait_us=settings.active_wait_us or None,
    )
