"""What a broker knows of a topic."""

from dataclasses import dataclass
from enum import IntFlag
from typing import Final

QUEUE_COUNT_MAX: Final = 65_536
"""Queues of one topic; RocketMQ has no limit, a table of them must have one."""


class Perm(IntFlag):
    """What may be done with a topic, or with a broker."""

    NONE = 0
    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8
    READ_WRITE = 6


class TopicSysFlag(IntFlag):
    """Whether a topic belongs to a unit, or is subscribed to from one."""

    NONE = 0
    UNIT = 1
    UNIT_SUB = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The configuration of one topic on one broker."""

    name: str
    read_queue_count: int = 16
    write_queue_count: int = 16
    perm: int = Perm.READ_WRITE
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = TopicSysFlag.NONE
    order: bool = False
