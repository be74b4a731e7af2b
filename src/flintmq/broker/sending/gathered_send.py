"""A send that was gathered, to be stored together with others."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from flintmq.remoting import ReceivedRequest
    from flintmq.remoting.request_table import RequestSource
    from flintmq.store.append_group.sends import SendTarget


class GatheredSend(NamedTuple):
    """A send that waits to be stored with others, and the request it came as."""

    target: SendTarget
    born_timestamp: int
    properties_text: str
    request: ReceivedRequest
    connection: RequestSource
    born_host: bytes
