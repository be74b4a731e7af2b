"""How much a peer may take of a process."""

from dataclasses import dataclass

from flintmq.format.frame import FRAME_SIZE_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of the connections of one server or client.  Sizes are bytes, times milliseconds."""

    frame_size_max: int = FRAME_SIZE_MAX
    half_frames_size_max: int = 128 << 20
    """What all connections of a server hold of frames that are not whole yet.

    When it is more, the connection whose frame began first is dropped.
    """
    connection_count_max: int = 16_384
    """Connections of a server; one more is closed at once."""
    write_pause_size: int = 4 << 20
    """A peer that leaves so much unread is not read from until it has caught up."""
    write_drop_size: int = 64 << 20
    """A peer that leaves so much unread is dropped; at least two frames fit below."""
    waiting_count_max: int = 4096
    """Requests of one connection that wait for something; one more is answered SYSTEM_BUSY."""
    in_flight_count_max: int = 65_535
    """Requests of ours on one connection that wait for answers."""
    idle_timeout_ms: int = 120_000
    """A connection with neither reads nor writes for so long is closed."""
    connect_timeout_ms: int = 3000

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive")
        if self.half_frames_size_max < self.frame_size_max:
            raise ValueError("half_frames_size_max must be at least frame_size_max")
        if self.write_pause_size >= self.write_drop_size:
            raise ValueError("write_pause_size must be below write_drop_size")
