"""Settings of Java's own network layer, which every server of RocketMQ has."""

from dataclasses import dataclass

from flintmq.settings.setting import Owner, number, switch


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """They are read, checked and printed, so that tools find the keys they know; we ignore them."""

    server_worker_threads: int = number("serverWorkerThreads", 8, owner=Owner.SERVER)
    server_callback_threads: int = number("serverCallbackExecutorThreads", 0, owner=Owner.SERVER)
    server_selector_threads: int = number("serverSelectorThreads", 3, owner=Owner.SERVER)
    server_oneway_max: int = number("serverOnewaySemaphoreValue", 256, owner=Owner.SERVER)
    server_async_max: int = number("serverAsyncSemaphoreValue", 64, owner=Owner.SERVER)
    server_send_buffer: int = number("serverSocketSndBufSize", 0, owner=Owner.SERVER)
    server_receive_buffer: int = number("serverSocketRcvBufSize", 0, owner=Owner.SERVER)
    write_high_water: int = number("writeBufferHighWaterMark", 0, owner=Owner.SERVER)
    write_low_water: int = number("writeBufferLowWaterMark", 0, owner=Owner.SERVER)
    server_backlog: int = number("serverSocketBacklog", 1024, owner=Owner.SERVER)
    server_pooled_buffers: bool = switch(
        "serverPooledByteBufAllocatorEnable", True, owner=Owner.SERVER
    )
    use_epoll: bool = switch("useEpollNativeSelector", owner=Owner.SERVER)
