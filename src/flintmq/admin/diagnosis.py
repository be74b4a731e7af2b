"""What the doctor looks at, and what it says about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flintmq.admin.dead_letter_admin import DeadLetters
    from flintmq.admin.lag_admin import GroupSummary
    from flintmq.admin.member_admin import SubscriptionMismatch
    from flintmq.client.searching.broker_places import BrokerPlace
    from flintmq.model.topic_config import TopicConfig


class DiagnosisLevel(Enum):
    """How bad something is."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """One thing that was checked, what was found, and what to do about it."""

    level: DiagnosisLevel
    check: str
    """The name of what was found, or of the check that found nothing."""
    subject: str
    finding: str
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorLimits:
    """From when on something is worth a word.  Sizes are bytes."""

    disk_warning: float = 0.75
    disk_problem: float = 0.85
    replication_gap: int = 16 << 20
    dispatch_behind: int = 64 << 20
    clock_skew_s: float = 5.0
    dead_letter_age_s: float = 3600.0
    lag: int = 100_000


@dataclass(slots=True, kw_only=True)
class BrokerPicture:
    """One broker process as it was found."""

    place: BrokerPlace
    error: str | None = None
    """Why it did not answer."""
    info: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    asked_at_ms: int = 0
    """When it told its time, by the clock of here."""


@dataclass(slots=True, kw_only=True)
class ClusterPicture:
    """A cluster as it was found, with what could not be asked."""

    name_servers: Mapping[str, frozenset[str] | str] = field(default_factory=dict)
    """For each name server the addresses of brokers that it knows, or why it did not answer."""
    brokers: Sequence[BrokerPicture] = ()
    route_perms: Mapping[str, int] = field(default_factory=dict)
    """What name servers allow on the topic that each broker has by its own name."""
    groups: Sequence[GroupSummary] = ()
    mismatches: Sequence[SubscriptionMismatch] = ()
    dead_letters: Sequence[DeadLetters] = ()
    now_ms: int = 0
    unknown: Sequence[str] = ()
    """What could not be found out, and why."""
