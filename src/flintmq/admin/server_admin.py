"""Brokers: how they are doing, their settings, and what they clean up when told to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flintmq.admin.admin_base import AdminBase
from flintmq.admin.changes import AdminChange, PlannedChange, carry_out, plan_each
from flintmq.client.errors import UsageError
from flintmq.client.searching.broker_places import Answers, BrokerPlace
from flintmq.format.wire.bodies.dialect import Members, loads_body
from flintmq.format.wire.codes import RequestCode
from flintmq.settings.property_files import write_properties

if TYPE_CHECKING:
    from collections.abc import Mapping

VALUE_LENGTH_MAX: Final = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSummary:
    """One broker of a cluster, as ``clusterList`` shows it."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    version: str
    in_per_second: float
    send_queue_size: int
    send_queue_wait_ms: int
    out_per_second: float
    pull_queue_size: int
    pull_queue_wait_ms: int
    page_cache_lock_ms: int
    earliest_stored_at_ms: int | None
    """When its oldest message was stored."""
    disk_ratio: float | None
    """How full the disk of its commit log is, from 0 to 1."""
    in_yesterday: int
    out_yesterday: int
    in_today: int
    out_today: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerValues:
    """Named values of one broker: its status, or its settings."""

    broker: str
    broker_id: int
    address: str
    values: Mapping[str, str]


class ServerAdmin(AdminBase):
    """Operations on brokers."""

    async def runtime_info(self, address: str) -> dict[str, str]:
        """Return what one broker tells of how it is doing."""
        answer = await self.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        table = Members(loads_body(answer.body), "a broker's status").table("table")
        return {str(name): str(value) for name, value in table.items()}

    async def broker_summaries(self) -> Answers[BrokerPlace, BrokerSummary]:
        """Return all brokers with their rates, and those that did not answer."""

        async def ask(place: BrokerPlace) -> BrokerSummary:
            return _summary(place, await self.runtime_info(place.address))

        return await self.ask_all(await self.all_places(), ask)

    async def broker_status(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> Answers[BrokerPlace, BrokerValues]:
        """Return how a broker, or each of a cluster, is doing."""

        async def ask(place: BrokerPlace) -> BrokerValues:
            values = await self.runtime_info(place.address)
            return _values(place, dict(sorted(values.items())))

        places = await self.places(cluster=cluster, broker=broker, masters_only=False)
        return await self.ask_all(places, ask)

    # -- settings ----------------------------------------------------------------------------

    async def settings_of(self, address: str) -> dict[str, str]:
        """Return the settings of one broker."""
        answer = await self.ask(address, RequestCode.GET_BROKER_CONFIG)
        return shown_settings(answer.body)

    async def broker_config(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> Answers[BrokerPlace, BrokerValues]:
        """Return the settings of a broker, or of all masters and slaves of a cluster."""

        async def ask(place: BrokerPlace) -> BrokerValues:
            return _values(place, dict(sorted((await self.settings_of(place.address)).items())))

        places = await self.places(cluster=cluster, broker=broker, masters_only=False)
        return await self.ask_all(places, ask)

    async def update_broker_config(
        self,
        settings: Mapping[str, str],
        *,
        cluster: str | None = None,
        broker: str | None = None,
        dry_run: bool = False,
    ) -> list[AdminChange]:
        """AdminChange settings of a broker, or of all brokers of a cluster, while they run."""
        body = settings_body(settings)

        async def plan(place: BrokerPlace) -> PlannedChange:
            before = await self.settings_of(place.address)
            change = settings_change(place.label, before, settings)
            return self._settings_plan(change, place.address, body)

        places = await self.places(cluster=cluster, broker=broker, masters_only=False)
        return await carry_out(await plan_each(places, "settings", plan), dry_run=dry_run)

    def _settings_plan(self, change: AdminChange, address: str, body: bytes) -> PlannedChange:
        code = RequestCode.UPDATE_BROKER_CONFIG
        return PlannedChange(change, lambda: self.ask(address, code, None, body))

    # -- cleaning ----------------------------------------------------------------------------

    async def clean_expired_queues(
        self, *, cluster: str | None = None, broker: str | None = None, dry_run: bool = False
    ) -> list[AdminChange]:
        """Have brokers delete queues of which no message is left; all brokers unless named."""
        return await self._order(
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
            "expired consume queues",
            cluster=cluster,
            broker=broker,
            dry_run=dry_run,
        )

    async def clean_unused_topics(
        self, *, cluster: str | None = None, broker: str | None = None, dry_run: bool = False
    ) -> list[AdminChange]:
        """Have brokers delete the queues of topics that do not exist any more."""
        return await self._order(
            RequestCode.CLEAN_UNUSED_TOPIC,
            "queues of deleted topics",
            cluster=cluster,
            broker=broker,
            dry_run=dry_run,
        )

    async def delete_expired_log(
        self, *, cluster: str | None = None, broker: str | None = None, dry_run: bool = False
    ) -> list[AdminChange]:
        """Have brokers delete commit-log files that are old enough, now."""
        return await self._order(
            RequestCode.DELETE_EXPIRED_COMMITLOG,
            "expired commit-log files",
            cluster=cluster,
            broker=broker,
            dry_run=dry_run,
        )

    async def _order(
        self, code: int, subject: str, *, cluster: str | None, broker: str | None, dry_run: bool
    ) -> list[AdminChange]:
        if cluster is None and broker is None:
            places = [one for one in await self.all_places() if one.is_master]
        else:
            places = await self.places(cluster=cluster, broker=broker)
        plans = [self._order_plan_of(place, code, subject) for place in places]
        return await carry_out(plans, dry_run=dry_run)

    def _order_plan_of(self, place: BrokerPlace, code: int, subject: str) -> PlannedChange:
        change = AdminChange(target=place.label, subject=subject)
        return PlannedChange(change, lambda: self.ask(place.address, code), always=True)


def settings_body(settings: Mapping[str, str]) -> bytes:
    """Return settings as the lines that servers read; UsageError if one would be several."""
    if not settings:
        raise UsageError("name a setting (-k) and its value (-v)")
    for key, value in settings.items():
        if not key or any(one in key for one in "=\r\n \t"):
            raise UsageError(f"not the name of a setting: {key!r}")
        if len(value) > VALUE_LENGTH_MAX or "\n" in value or "\r" in value:
            raise UsageError(f"the value of {key} must be one line")
    return write_properties(settings)


def shown_settings(body: bytes) -> dict[str, str]:
    """Return the settings that a server shows: one ``key=value`` a line, nothing escaped."""
    pairs = (line.partition("=") for line in body.decode("utf-8", "replace").splitlines())
    return {key: value for key, separator, value in pairs if separator}


def settings_change(
    target: str, before: Mapping[str, str], after: Mapping[str, str]
) -> AdminChange:
    """Return what becomes of the settings of one server."""
    return AdminChange(
        target=target,
        subject="settings",
        old={key: before.get(key) for key in after},
        new=dict(after),
    )


def _values(place: BrokerPlace, values: Mapping[str, str]) -> BrokerValues:
    return BrokerValues(
        broker=place.broker, broker_id=place.broker_id, address=place.address, values=values
    )


def _summary(place: BrokerPlace, info: Mapping[str, str]) -> BrokerSummary:
    def number(name: str) -> int:
        return _integer(info, name)

    earliest = number("earliestMessageTimeStamp")
    ratio = _number(info.get("commitLogDiskRatio", ""))
    put_now, put_morning = number("msgPutTotalTodayNow"), number("msgPutTotalTodayMorning")
    get_now, get_morning = number("msgGetTotalTodayNow"), number("msgGetTotalTodayMorning")
    return BrokerSummary(
        cluster=place.cluster,
        broker=place.broker,
        broker_id=place.broker_id,
        address=place.address,
        version=info.get("brokerVersionDesc", ""),
        in_per_second=_first_rate(info, "putTps"),
        send_queue_size=number("sendThreadPoolQueueSize"),
        send_queue_wait_ms=number("sendThreadPoolQueueHeadWaitTimeMills"),
        # Releases of 5.x spell it rightly.
        out_per_second=_first_rate(info, "getTransferedTps")
        or _first_rate(info, "getTransferredTps"),
        pull_queue_size=number("pullThreadPoolQueueSize"),
        pull_queue_wait_ms=number("pullThreadPoolQueueHeadWaitTimeMills"),
        page_cache_lock_ms=number("pageCacheLockTimeMills"),
        earliest_stored_at_ms=earliest if earliest > 0 else None,
        disk_ratio=None if ratio is None or ratio < 0 else ratio,
        in_yesterday=put_morning - number("msgPutTotalYesterdayMorning"),
        out_yesterday=get_morning - number("msgGetTotalYesterdayMorning"),
        in_today=put_now - put_morning,
        out_today=get_now - get_morning,
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _integer(info: Mapping[str, str], name: str) -> int:
    found = _number(info.get(name, ""))
    return 0 if found is None else int(found)


def _first_rate(info: Mapping[str, str], name: str) -> float:
    """Return the first of the three rates that a broker tells: that of the last ten seconds."""
    words = info.get(name, "").split()
    return (_number(words[0]) or 0.0) if words else 0.0
