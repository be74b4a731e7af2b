"""Administration of the broker itself: settings, status, statistics, files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flintmq.broker.runtime_info import runtime_info
from flintmq.format.bodies.dialect import dumps_body
from flintmq.format.bodies.topics import version_to_json
from flintmq.format.codes import ResponseCode
from flintmq.format.headers.admin import BrokerConfigResponse, BrokerStatsRequest
from flintmq.format.headers.clients import NoFields
from flintmq.remoting import Answer, RefusedError, Request
from flintmq.settings.properties import ConfigError

if TYPE_CHECKING:
    from flintmq.broker.parts import BrokerParts
    from flintmq.broker.statistics import Span


class BrokerProcessor:
    """Serves what operators ask and order about a broker."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts

    def get_config(self, request: Request[NoFields]) -> Answer:
        """Tell all settings."""
        # A setting of the store that was changed is told as it is now.
        shown = self._parts.store.config.to_properties() | self._parts.live_config.shown()
        lines = "".join(f"{key}={value}\n" for key, value in shown.items())
        version = dumps_body(version_to_json(self._parts.live_config.version)).decode()
        return Answer(header=BrokerConfigResponse(version=version), parts=[lines.encode()])

    def update_config(self, request: Request[NoFields]) -> Answer:
        """Change settings that may be changed."""
        before = self._parts.config.permission
        try:
            self._parts.live_config.update(request.body)
        except ConfigError as error:
            raise RefusedError(ResponseCode.NO_PERMISSION, str(error)) from error
        if self._parts.config.permission != before:
            self._parts.topics.bump_version()
            self._parts.topics.announce()
        return Answer()

    def runtime(self, request: Request[NoFields]) -> Answer:
        """Tell how the broker is doing."""
        return Answer(parts=[dumps_body({"table": runtime_info(self._parts)})])

    def stats(self, request: Request[BrokerStatsRequest]) -> Answer:
        """Tell one statistic of the last minute, hour and day."""
        header = request.header
        counter = self._parts.statistics.get(header.stats_name, header.stats_key)
        if counter is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        body = {
            "statsDay": _span(counter.day),
            "statsHour": _span(counter.hour),
            "statsMinute": _span(counter.minute),
        }
        return Answer(parts=[dumps_body(body)])

    def delete_expired_log(self, request: Request[NoFields]) -> Answer:
        """Delete log files that are old enough, now."""
        self._parts.store.retention.request_manual_delete()
        return Answer()


def _span(span: Span) -> dict[str, Any]:
    return {"avgpt": span.per_time, "sum": span.sum, "tps": span.per_second}
