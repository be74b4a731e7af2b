"""How the brokers of a cluster are doing, in the form in which mqadmin exports it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from flintmq.admin.export_admin import ExportAdmin, now_ms
from flintmq.client.errors import ConsumerNotOnlineError
from flintmq.model.topics import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, TRANS_HALF_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from flintmq.admin.statistics_admin import BrokerCounter
    from flintmq.client.searching.broker_places import BrokerPlace


class MeasureAdmin(ExportAdmin):
    """The operation that measures a cluster."""

    async def export_metrics(self, *, cluster: str) -> dict[str, Any]:
        """Return how the masters of a cluster are doing: rates, disks, versions, counts."""
        reports: dict[str, Any] = {}
        rates: Counter[str] = Counter()
        day: Counter[str] = Counter()
        for place in await self.places(cluster=cluster):
            report = reports[place.broker] = await self._measures(place)
            rates.update(report["runtimeQuota"]["tps"])
            day.update(report["runtimeQuota"]["oneDayNum"])
        total = {f"total{name[0].upper()}{name[1:]}": rate for name, rate in rates.items()}
        return {
            "exportTime": now_ms(),
            "evaluateReport": reports,
            "totalData": {"totalTps": total, "totalOneDayNum": dict(day)},
        }

    async def _measures(self, place: BrokerPlace) -> dict[str, Any]:
        info = await self.runtime_info(place.address)
        settings = await self.settings_of(place.address)
        topics = await self.own_topics(place.address)
        groups = await self.own_groups(place.address)
        later = await self.broker_counter(place.address, "TOPIC_PUT_NUMS", SCHEDULE_TOPIC)
        half = await self.broker_counter(place.address, "TOPIC_PUT_NUMS", TRANS_HALF_TOPIC)
        return {
            # What mqadmin takes for the number of processors.
            "runtimeEnv": {"cpuNum": settings.get("clientCallbackExecutorThreads", "")},
            "runtimeVersion": {
                "rocketmqVersion": info.get("brokerVersionDesc", ""),
                "clientInfo": await self._client_kinds(place, groups),
            },
            "runtimeQuota": {
                "diskRatio": {
                    key: info.get(key, "")
                    for key in ("commitLogDiskRatio", "consumeQueueDiskRatio")
                },
                "tps": {
                    "normalInTps": _last_rate(info, "putTps"),
                    "normalOutTps": _last_rate(info, "getTransferedTps"),
                    "scheduleInTps": 0.0 if later is None else later.per_second,
                    "transInTps": 0.0 if half is None else half.per_second,
                },
                "oneDayNum": {
                    "normalOneDayInNum": _of_a_day(info, "msgPutTotal"),
                    "normalOneDayOutNum": _of_a_day(info, "msgGetTotal"),
                    "scheduleOneDayInNum": _day_of(later),
                    "transOneDayInNum": _day_of(half),
                },
                "messageAverageSize": info.get("putMessageAverageSize", ""),
                "topicSize": sum(
                    not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) for topic in topics
                ),
                "groupSize": len(groups),
            },
        }

    async def _client_kinds(self, place: BrokerPlace, groups: Iterable[str]) -> list[str]:
        """Return languages and versions of the consumers of a broker."""
        found: set[str] = set()
        for group in groups:
            try:
                members = await self.consumer_members(group, broker=place.address)
            except ConsumerNotOnlineError:
                continue
            found |= {f"{one.language}%{one.version}" for one in members.clients}
        return sorted(found)


def _last_rate(info: Mapping[str, str], key: str) -> float:
    """Return the rate of the last ten seconds; a broker that is younger tells none."""
    first = info.get(key, "").split(" ")[0]
    try:
        return float(first or 0)
    except ValueError:
        return 0.0


def _of_a_day(info: Mapping[str, str], prefix: str) -> int:
    """Return how many messages there were from midnight to midnight."""
    until, since = (info.get(f"{prefix}{one}Morning", "") for one in ("Today", "Yesterday"))
    return int(until) - int(since) if until.isdecimal() and since.isdecimal() else 0


def _day_of(counter: BrokerCounter | None) -> int:
    return 0 if counter is None else counter.day_or_less
