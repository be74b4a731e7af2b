"""Requests that have waited for their turn for too long: they are refused instead of handled.

A broker that gets more than it can do answers later and later, until nobody waits for the answers
any more.  So whoever has waited too long is told that the broker is busy, which takes next to no
time, and those that come then are served in time again.  How long is too long depends on what is
asked for, by RocketMQ's settings ``waitTimeMillsIn…Queue``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.format.wire.codes import RequestCode
from flintmq.remoting.refusal_counts import OLD_REQUESTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.broker.config import BrokerConfig
    from flintmq.remoting.refusal_counts import RefusalCounts

_SENDS: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
    }
)


class OldRequests:
    """Tells which requests are too old; whatever has no setting never is."""

    def __init__(self, config: Callable[[], BrokerConfig], refused: RefusalCounts) -> None:
        self._config = config
        self._refused = refused

    def __call__(self, code: int, waited_s: float) -> str | None:
        """Return why a request is refused that has waited so long, None if it is not."""
        most_ms = self._wait_max_ms(code)
        if most_ms is None or waited_s * 1000 < most_ms:
            return None
        self._refused.note(OLD_REQUESTS)
        return f"[TIMEOUT_CLEAN_QUEUE]the broker is busy: waited {waited_s * 1000:.0f} ms"

    def _wait_max_ms(self, code: int) -> int | None:
        config = self._config()
        if not config.fast_failure:
            return None
        if code in _SENDS:
            return config.send_wait_max_ms
        if code == RequestCode.PULL_MESSAGE:
            return config.pull_wait_max_ms
        if code == RequestCode.HEART_BEAT:
            return config.heartbeat_wait_max_ms
        return config.transaction_wait_max_ms if code == RequestCode.END_TRANSACTION else None
