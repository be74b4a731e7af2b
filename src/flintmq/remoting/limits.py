"""How much a peer may take of a process."""

from flintmq.format.wire.frame import FRAME_SIZE_MAX
from flintmq.model.value_class import Value, value_class


@value_class
class Limits(Value):
    """Bounds of the connections of one server or client.  Sizes are bytes, times milliseconds."""

    frame_size_max: int = FRAME_SIZE_MAX
    half_frames_size_max: int = 128 << 20
    """Bytes of unfinished frames that all connections of a server may hold together.

    When it is more, the connection whose frame began first is dropped.
    """
    connection_count_max: int = 16_384
    """Connections of a server; one more is closed at once."""
    address_connection_count_max: int | None = None
    """Connections of a server from one address; one more is closed at once.  None: any number."""
    backlog: int = 1024
    """Connections that wait in the system until a server accepts them."""
    write_pause_size: int = 4 << 20
    """A peer that leaves so much unread is not read from until it has caught up.

    To a server that leaves so much unread a client sends no further request until then.
    """
    write_drop_size: int = 64 << 20
    """A peer that leaves so much unread is dropped; at least two frames fit below."""
    unread_answers_pause_size: int = 128 << 20
    """When all peers together leave more unread, each may leave only its share of this."""
    unread_answers_size_max: int = 256 << 20
    """Bytes that all peers of a server may leave unread together.

    Before it would be more, the connections with the most unread bytes are dropped.
    """
    request_bytes_max: int = 256 << 20
    """Bytes of requests that are worked on, of all peers of a server; one more is SYSTEM_BUSY."""
    peer_request_bytes_max: int = 64 << 20
    """The same of one peer."""
    waiting_count_max: int = 4096
    """Requests of one connection that wait for something; one more is answered SYSTEM_BUSY."""
    in_flight_count_max: int = 65_535
    """Requests of ours on one connection that wait for answers."""
    idle_timeout_ms: int = 120_000
    """A connection with neither reads nor writes for so long is closed."""
    connect_timeout_ms: int = 3000
    handshake_timeout_ms: int = 10_000
    """How long a TLS handshake may take, however slowly its bytes come."""
    handshake_count_max: int = 512
    """TLS handshakes under way at a listener; a connection that would begin one more is closed."""
    missing_count_max: int = 3
    """Answers of a server that may be missing in a row before the connection to it is probed."""
    probe_timeout_ms: int = 3000
    """How long a probe may stay unanswered before the connection is closed."""
    active_wait_us: int | None = None
    """How long a server stays awake for the next request of a client that asks one at a time.

    None: not at all.
    """

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be positive")
        if self.half_frames_size_max < self.frame_size_max:
            raise ValueError("half_frames_size_max must be at least frame_size_max")
        if min(self.request_bytes_max, self.peer_request_bytes_max) < self.frame_size_max:
            raise ValueError("a request of frame_size_max must fit below the bytes under way")
        if self.write_pause_size >= self.write_drop_size:
            raise ValueError("write_pause_size must be below write_drop_size")
        if self.unread_answers_pause_size >= self.unread_answers_size_max:
            raise ValueError("unread_answers_pause_size must be below unread_answers_size_max")
