"""The checks of the doctor: each takes the picture of a cluster, and says what it finds.

Nothing is asked here.  Every check says at least one thing, so that an operator sees what was
looked at.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from flintmq.admin.diagnosis import Diagnosis, DiagnosisLevel
from flintmq.model.topic_config import Perm
from flintmq.model.topics import DLQ_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flintmq.admin.diagnosis import BrokerPicture, ClusterPicture, DoctorLimits

    Check = Callable[[ClusterPicture, DoctorLimits], Iterator[Diagnosis]]

OK, NOTE = DiagnosisLevel.OK, DiagnosisLevel.NOTE
WARNING, PROBLEM = DiagnosisLevel.WARNING, DiagnosisLevel.PROBLEM

_RUNTIME: Final = re.compile(
    r"\[ *(\d+) days?, *(\d+) hours?, *(\d+) minutes?, *(\d+) seconds? *\]"
)
_SYNC_MASTER: Final = "SYNC_MASTER"


def _said(
    level: DiagnosisLevel, check: str, subject: str, finding: str, advice: str = ""
) -> Diagnosis:
    return Diagnosis(level=level, check=check, subject=subject, finding=finding, advice=advice)


def check_name_servers(picture: ClusterPicture, limits: DoctorLimits) -> Iterator[Diagnosis]:
    """Say which name servers do not answer, and whether those that do know the same brokers."""
    views = {k: v for k, v in picture.name_servers.items() if isinstance(v, frozenset)}
    for address, view in picture.name_servers.items():
        if isinstance(view, str):
            advice = "start it, or take it out of the addresses of clients and brokers"
            yield _said(PROBLEM, "name-server-unreachable", address, view, advice)
    everything = frozenset[str]().union(*views.values())
    for address, view in views.items():
        missing = sorted(everything - view)
        if missing:
            yield _said(
                PROBLEM,
                "name-servers-disagree",
                address,
                f"does not know {', '.join(missing)}",
                "give the broker all name servers (namesrvAddr), and see whether it reaches them",
            )
        else:
            yield _said(OK, "name-servers", address, f"answers; brokers known: {len(view)}")


def check_brokers(picture: ClusterPicture, limits: DoctorLimits) -> Iterator[Diagnosis]:
    """Say which brokers are missing or cannot be reached at the addresses that clients get."""
    if not picture.brokers:
        advice = "start a broker, and give it this name server (namesrvAddr)"
        yield _said(PROBLEM, "no-broker", "cluster", "no broker is registered", advice)
    outside = [one for one in picture.name_servers if not _is_loopback(one)]
    for broker in picture.brokers:
        place = broker.place
        if broker.error is not None:
            yield _said(
                PROBLEM,
                "broker-unreachable",
                place.label,
                f"the address that clients get cannot be used from here: {broker.error}",
                "see whether it runs; if it does, set brokerIP1 to an address that clients reach",
            )
        elif outside and _is_loopback(place.address):
            yield _said(
                WARNING,
                "advertised-loopback",
                place.label,
                "clients on other machines are told to connect to themselves",
                "set brokerIP1 to an address that clients reach",
            )
        else:
            version = broker.info.get("brokerVersionDesc", "unknown")
            yield _said(OK, "broker", place.label, f"reachable from here, release {version}")
    names = {one.place.broker for one in picture.brokers}
    masters = {one.place.broker for one in picture.brokers if one.place.is_master}
    for name in sorted(names - masters):
        advice = "start its master, or promote the slave (flintmq broker promote)"
        yield _said(PROBLEM, "no-master", name, "only slaves are up: nobody can send to it", advice)


def _is_loopback(address: str) -> bool:
    return address.startswith(("127.", "localhost:", "[::1]"))


def _answering(picture: ClusterPicture) -> list[BrokerPicture]:
    return [one for one in picture.brokers if one.error is None]


def check_disks(picture: ClusterPicture, limits: DoctorLimits) -> Iterator[Diagnosis]:
    """Say which disks are filling up."""
    for broker in _answering(picture):
        ratio = _number(broker.info.get("commitLogDiskRatio"))
        label = broker.place.label
        if ratio is None or ratio < 0:
            yield _said(NOTE, "disk", label, "the broker does not tell how full its disk is")
        elif ratio >= limits.disk_warning:
            is_full = ratio >= limits.disk_problem
            yield _said(
                PROBLEM if is_full else WARNING,
                "disk-full" if is_full else "disk-filling",
                label,
                f"{ratio:.0%} full; old messages are deleted early, and sends refused when full",
                "lower fileReservedTime, delete log files (deleteExpiredCommitLog), or add space",
            )
        else:
            yield _said(OK, "disk", label, f"{ratio:.0%} full")


def check_durability(picture: ClusterPicture, limits: DoctorLimits) -> Iterator[Diagnosis]:
    """Say in words what an acknowledged message survives."""
    for broker in _answering(picture):
        if not broker.place.is_master:
            continue
        flush = broker.settings.get("flushDiskType")
        if flush == "SYNC_FLUSH":
            text = "a message is acknowledged after it is on the disk: a power failure loses none"
            yield _said(OK, "flush", broker.place.label, text)
        elif flush == "ASYNC_FLUSH":
            interval = broker.settings.get("flushIntervalCommitLog", "500")
            text = (
                f"a message is acknowledged before it is on the disk: a power failure may lose "
                f"the last {interval} ms to 10 s"
            )
            yield _said(NOTE, "flush", broker.place.label, text)
        else:
            yield _said(NOTE, "flush", broker.place.label, "its flush mode is not known")


def check_replication(picture: ClusterPicture, limits: DoctorLimits) -> Iterator[Diagnosis]:
    """Say which slaves are missing or far behind."""
    up = _answering(picture)
    for master in (one for one in up if one.place.is_master):
        slaves = [
            one for one in up if one.place.broker == master.place.broker and not one.place.is_master
        ]
        role, label = master.settings.get("brokerRole", ""), master.place.label
        if role == _SYNC_MASTER and not slaves:
            yield _said(
                PROBLEM,
                "no-slave",
                label,
                "it waits for a slave, and none is there: sends end with SLAVE_NOT_AVAILABLE",
                "start the slave, or set brokerRole=ASYNC_MASTER",
            )
        elif not slaves:
            text = "no slave: what its disk loses is lost"
            yield _said(NOTE, "replication", label, text)
        for slave in slaves:
            yield from _gap(master, slave, limits)


def _gap(master: BrokerPicture, slave: BrokerPicture, limits: DoctorLimits) -> Iterator[Diagnosis]:
    ends = [_number(one.info.get("commitLogMaxOffset")) for one in (master, slave)]
    if ends[0] is None or ends[1] is None:
        return
    gap, label = max(int(ends[0] - ends[1]), 0), slave.place.label
    if gap > limits.replication_gap:
        yield _said(
            PROBLEM,
            "replication-gap",
            label,
            f"{gap} bytes behind its master: so much is lost if the master is",
            "see its log and the network between them (haMasterAddress, haListenPort)",
        )
    else:
        yield _said(OK, "replication", label, f"{gap} bytes behind its master")


def check_dispatch(picture: ClusterPicture, limits: DoctorLimits) -> Iterator[Diagnosis]:
    """Say where stored messages are not visible to consumers yet."""
    for broker in _answering(picture):
        behind = _number(broker.info.get("dispatchBehindBytes")) or 0
        if behind > limits.dispatch_behind:
            yield _said(
                WARNING,
                "dispatch-behind",
                broker.place.label,
                f"{int(behind)} bytes are stored and not visible to consumers yet",
                "its disk or processor is too slow for what is sent",
            )
        else:
            yield _said(OK, "dispatch", broker.place.label, f"{int(behind)} bytes behind")


def check_clocks(picture: ClusterPicture, limits: DoctorLimits) -> Iterator[Diagnosis]:
    """Say whose clock differs from that of here; a broker tells its start and how long it runs."""
    for broker in _answering(picture):
        boot = _number(broker.info.get("bootTimestamp"))
        running = _RUNTIME.search(broker.info.get("runtime", ""))
        label = broker.place.label
        if boot is None or running is None:
            yield _said(NOTE, "clock", label, "the broker does not tell its time")
            continue
        days, hours, minutes, seconds = map(int, running.groups())
        told_ms = boot + 1000 * (86_400 * days + 3600 * hours + 60 * minutes + seconds)
        # It tells whole seconds.
        skew_s = max(abs(broker.asked_at_ms - told_ms) / 1000 - 1, 0)
        if skew_s > limits.clock_skew_s:
            yield _said(
                WARNING,
                "clock-skew",
                label,
                f"its clock and that of here differ by {skew_s:.0f} s",
                "run a time service on both: delays, resets by time and retention follow clocks",
            )
        else:
            yield _said(OK, "clock", label, "agrees with that of here")


def check_drained(picture: ClusterPicture, limits: DoctorLimits) -> Iterator[Diagnosis]:
    """Say which brokers nobody may send to."""
    for broker in _answering(picture):
        name = broker.place.broker
        perm = picture.route_perms.get(name)
        if broker.place.is_master and perm is not None and not perm & Perm.WRITE:
            yield _said(
                WARNING,
                "drained-broker",
                name,
                "name servers tell clients not to send to it",
                f"if that is no longer wanted: flintmq admin addWritePerm -b {name}",
            )


def check_groups(picture: ClusterPicture, limits: DoctorLimits) -> Iterator[Diagnosis]:
    """Say which groups are behind, without members, or of members that want different things."""
    for mismatch in picture.mismatches:
        wanted = "; ".join(
            f"{expression or 'nothing'}: {', '.join(clients)}"
            for expression, clients in mismatch.expressions.items()
        )
        yield _said(
            PROBLEM,
            "subscription-mismatch",
            f"{mismatch.group} in {mismatch.topic}",
            f"members subscribe differently, so messages are lost to them ({wanted})",
            "give all members of a group the same subscription, or separate groups",
        )
    for group in picture.groups:
        if not group.member_count and group.diff_total > 0:
            yield _said(
                WARNING,
                "nobody-consumes",
                group.group,
                f"{group.diff_total} messages wait, and no member is connected",
                "start its consumers, or delete the group if it is not needed (deleteSubGroup)",
            )
        elif group.diff_total > limits.lag:
            yield _said(
                WARNING,
                "lag",
                group.group,
                f"{group.diff_total} messages behind",
                "add members (not more than queues), or make handlers faster",
            )
    if not picture.mismatches:
        yield _said(OK, "subscriptions", f"{len(picture.groups)} groups", "no member differs")


def check_dead_letters(picture: ClusterPicture, limits: DoctorLimits) -> Iterator[Diagnosis]:
    """Say which groups have given up on messages lately, and which dead letters nobody can read."""
    for one in picture.dead_letters:
        if not one.messages:
            continue
        age_s = (picture.now_ms - (one.last_stored_at_ms or 0)) / 1000
        is_new = age_s <= limits.dead_letter_age_s
        yield _said(
            WARNING if is_new else NOTE,
            "dead-letters-growing" if is_new else "dead-letters",
            one.group,
            f"{one.messages} dead letters, the last {age_s / 60:.0f} minutes ago",
            f"flintmq admin dlq show -g {one.group}; when mended: dlq replay",
        )
    for broker in _answering(picture):
        for name, topic in broker.topics.items():
            if name.startswith(DLQ_PREFIX) and not topic.perm & Perm.READ:
                yield _said(
                    WARNING,
                    "dead-letters-unreadable",
                    name,
                    "the topic may not be read",
                    f"flintmq admin updateTopicPerm -t {name} -p 6 -b {broker.place.address}",
                )


def check_settings(picture: ClusterPicture, limits: DoctorLimits) -> Iterator[Diagnosis]:
    """Say what is set up in a way that surprises in production."""
    for broker in _answering(picture):
        if broker.place.is_master and broker.settings.get("autoCreateTopicEnable") == "true":
            text = "a misspelt topic is created by the first send to it"
            advice = "set autoCreateTopicEnable=false in production"
            yield _said(NOTE, "auto-create-topics", broker.place.label, text, advice)
    for one in picture.unknown:
        yield _said(NOTE, "unknown", "doctor", one, "see whether this account may ask for it")


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


CHECKS: Final[tuple[Check, ...]] = (
    check_name_servers,
    check_brokers,
    check_disks,
    check_durability,
    check_replication,
    check_dispatch,
    check_clocks,
    check_drained,
    check_groups,
    check_dead_letters,
    check_settings,
)
"""All checks, in the order in which their findings are shown."""
