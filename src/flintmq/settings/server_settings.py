"""Settings of Java's own network layer, which every server of RocketMQ has."""

from dataclasses import field
from enum import Enum

from flintmq.format.wire.frame import HeaderType
from flintmq.model.value_class import value_class
from flintmq.settings.metrics_settings import MetricsSettings
from flintmq.settings.setting import Owner, choice, number, switch


class SerializeType(Enum):
    """How a server writes the headers of its own requests; answers are as what they answer."""

    JSON = "JSON"
    ROCKETMQ = "ROCKETMQ"

    @property
    def header_type(self) -> HeaderType:
        """The notation as frames have it."""
        return HeaderType[self.name]


@value_class
class ServerSettings(MetricsSettings):
    """Settings of the network layer; those that steer Java's threads and buffers are ignored."""

    serialize_type: SerializeType = field(
        default=SerializeType.JSON,
        metadata=choice("rocketmq.serialize.type", SerializeType, owner=Owner.SYSTEM),
    )
    idle_timeout_s: int = number(
        "serverChannelMaxIdleTimeSeconds", 120, minimum=1, owner=Owner.SERVER
    )
    server_backlog: int = number("serverSocketBacklog", 1024, minimum=1, owner=Owner.SERVER)
    connection_count_max: int = number("maxConnections", 16_384, minimum=1, owner=Owner.FLINTMQ)
    """Connections of a server in all; one more is closed."""
    address_connection_count_max: int = number("maxConnectionsPerAddress", 0, owner=Owner.FLINTMQ)
    """Connections from one address; one more is closed.  0: as many as there are in all."""
    unread_answers_size_max: int = number(
        "maxUnreadAnswerBytes", 256 << 20, minimum=32 << 20, owner=Owner.FLINTMQ
    )
    """Bytes that all peers may leave unread; half of it pauses those with the most.

    At least two frames of the largest size fit below.
    """
    peer_unread_answers_size: int = number(
        "maxUnreadAnswerBytesPerPeer", 4 << 20, minimum=64 << 10, owner=Owner.FLINTMQ
    )
    """A peer that leaves more unread is not read from; one that leaves 16 times it is dropped."""
    request_bytes_max: int = number(
        "maxInFlightBytes", 256 << 20, minimum=16 << 20, owner=Owner.FLINTMQ
    )
    """Bytes of requests that are worked on, of all peers; more are answered SYSTEM_BUSY."""
    peer_request_bytes_max: int = number(
        "maxInFlightBytesPerPeer", 64 << 20, minimum=16 << 20, owner=Owner.FLINTMQ
    )
    """The same of one peer."""
    half_frames_size_max: int = number(
        "maxHalfFrameBytes", 128 << 20, minimum=16 << 20, owner=Owner.FLINTMQ
    )
    """Bytes of requests that have come in part, of all peers."""
    active_wait_us: int = number("activeWaitMicros", 100, owner=Owner.FLINTMQ)
    """How long a server stays awake for the next request of a client that asks one at a time.

    0: it sleeps at once, as it does on a single core.
    """
    server_worker_threads: int = number("serverWorkerThreads", 8, owner=Owner.SERVER)
    server_callback_threads: int = number("serverCallbackExecutorThreads", 0, owner=Owner.SERVER)
    server_selector_threads: int = number("serverSelectorThreads", 3, owner=Owner.SERVER)
    server_oneway_max: int = number("serverOnewaySemaphoreValue", 256, owner=Owner.SERVER)
    server_async_max: int = number("serverAsyncSemaphoreValue", 64, owner=Owner.SERVER)
    server_send_buffer: int = number("serverSocketSndBufSize", 0, owner=Owner.SERVER)
    server_receive_buffer: int = number("serverSocketRcvBufSize", 0, owner=Owner.SERVER)
    write_high_water: int = number("writeBufferHighWaterMark", 0, owner=Owner.SERVER)
    write_low_water: int = number("writeBufferLowWaterMark", 0, owner=Owner.SERVER)
    server_pooled_buffers: bool = switch(
        "serverPooledByteBufAllocatorEnable", True, owner=Owner.SERVER
    )
    use_epoll: bool = switch("useEpollNativeSelector", owner=Owner.SERVER)
