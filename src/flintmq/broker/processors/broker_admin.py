"""Administration of the broker itself: settings, status, statistics, files."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from flintmq.broker.processors.runtime_info import runtime_info
from flintmq.broker.statistics.broker_statistics import (
    GROUP_FALL_SIZE,
    GROUP_FALL_TIME,
    PeriodTotals,
)
from flintmq.filter.sql92 import load_parser
from flintmq.format.wire.bodies.dialect import dumps_body
from flintmq.format.wire.bodies.topics import version_to_json
from flintmq.format.wire.codes import ResponseCode
from flintmq.format.wire.headers.admin import BrokerConfigResponse, BrokerStatsRequest
from flintmq.format.wire.headers.clients import NoFields
from flintmq.remoting import Answer, RefusedError, Request
from flintmq.settings.property_files import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from flintmq.broker.context import BrokerContext


class BrokerProcessor:
    """Serves what operators ask and order about a broker."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._writing = asyncio.Lock()
        self._writers: set[asyncio.Task[None]] = set()

    def get_config(self, request: Request[NoFields]) -> Answer:
        """Tell all settings."""
        # A setting of the store that was changed is told as it is now.
        store = self._context.store.config
        shown = store.to_properties() | self._context.live_config.shown()
        shown.setdefault("storePathCommitLog", str(store.effective_commit_log_paths[0]))
        lines = "".join(f"{key}={value}\n" for key, value in shown.items())
        version = dumps_body(version_to_json(self._context.live_config.version)).decode()
        return Answer(header=BrokerConfigResponse(version=version), parts=[lines.encode()])

    def update_config(self, request: Request[NoFields]) -> Awaitable[Answer]:
        """Change settings that may be changed; the answer waits until they are written down."""
        before = self._context.config
        try:
            self._context.live_config.change(request.body)
        except ConfigError as error:
            raise RefusedError(ResponseCode.NO_PERMISSION, str(error)) from error
        now = self._context.config
        if now.permission != before.permission:
            self._context.topics.bump_version()
        if (now.permission, now.namesrv_addr) != (before.permission, before.namesrv_addr):
            self._context.topics.announce()
        return self._written(loads_parser=now.property_filter and not before.property_filter)

    async def _written(self, *, loads_parser: bool) -> Answer:
        """Answer when all is written down, and what is switched on now holds up nobody."""
        task = asyncio.create_task(self._write())
        self._writers.add(task)
        task.add_done_callback(self._writers.discard)
        # A write cannot be broken off: it goes on, and keeps its place, though the peer is gone.
        await asyncio.shield(task)
        if loads_parser:
            await asyncio.to_thread(load_parser)
        return Answer()

    async def _write(self) -> None:
        # One after the other, each with all changes up to then: none replaces a later one.
        async with self._writing:
            await asyncio.to_thread(self._context.live_config.writing())

    def runtime(self, request: Request[NoFields]) -> Answer:
        """Tell how the broker is doing."""
        return Answer(parts=[dumps_body({"table": runtime_info(self._context)})])

    def stats(self, request: Request[BrokerStatsRequest]) -> Answer:
        """Tell one statistic of the last minute, hour and day."""
        header = request.header
        if header.stats_name in (GROUP_FALL_SIZE, GROUP_FALL_TIME):
            behind = self._behind(header.stats_key)
            if behind is not None:
                value = behind[header.stats_name == GROUP_FALL_TIME]
                # They are as they are now: there is nothing to add up.
                totals = _totals(PeriodTotals(value))
                body = dict.fromkeys(("statsDay", "statsHour", "statsMinute"), totals)
                return Answer(parts=[dumps_body(body)])
        counter = self._context.statistics.get(header.stats_name, header.stats_key)
        if counter is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        body = {
            "statsDay": _totals(counter.day),
            "statsHour": _totals(counter.hour),
            "statsMinute": _totals(counter.minute),
        }
        return Answer(parts=[dumps_body(body)])

    def _behind(self, key: str) -> tuple[int, int] | None:
        """Return how many bytes of the log, and how many milliseconds, a group is behind.

        That is from the last message that it got of a queue to the end of the log, and to now.
        None if it has got none, or that one is deleted.
        """
        context = self._context
        found = context.statistics.next_offset(key)
        if found is None:
            return None
        queue, next_offset = found
        stored = context.store.queues.get(queue.topic, queue.queue_id)
        unit = None if stored is None else stored.unit_at(next_offset - 1)
        if unit is None:
            return None
        stored_ms = context.store.reader.store_time(unit[0], unit[1])
        if stored_ms < 0:
            return None
        end = context.store.log.readable_end
        return max(end - unit[0] - unit[1], 0), max(context.clock.now_ms() - stored_ms, 0)

    def delete_expired_log(self, request: Request[NoFields]) -> Answer:
        """Delete log files that are old enough, now."""
        self._context.store.retention.request_manual_delete()
        return Answer()


def _totals(totals: PeriodTotals) -> dict[str, Any]:
    return {"avgpt": totals.per_time, "sum": totals.sum, "tps": totals.per_second}
