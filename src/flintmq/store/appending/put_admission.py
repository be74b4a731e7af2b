"""Put admission: whether a message may be stored as it is, and the status a refused put gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.format.stored.queue_claims import MULTI_DISPATCH, MULTI_OFFSETS
from flintmq.format.stored.record_encoding import encode_topic
from flintmq.format.stored.record_layout import (
    BLANK_SIZE,
    PROPERTIES_LENGTH_MAX,
    TOPIC_LENGTH_MAX,
)
from flintmq.model.property_names import DELAY
from flintmq.model.topics import LMQ_PREFIX
from flintmq.store.errors import StoreError
from flintmq.store.files.interface import is_safe_name
from flintmq.store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from flintmq.format.delay_levels import DelayLevels
    from flintmq.store.config import StoreConfig
    from flintmq.store.views.queue_table import QueueTable

RECORD_OVERHEAD_MAX: Final = 64 * 1024
"""How much a record may be larger than the body limit."""

QUEUE_ID_MAX: Final = (1 << 31) - 1
TOPIC_CACHE_MAX: Final = 16_384
FURTHER_COUNT_MAX: Final = 256
"""Queues that one message may enter besides its own: each new one is a directory with a file."""


class PutRefusedError(StoreError):
    """A put is refused; ``status`` is what the caller gets."""

    def __init__(self, status: PutStatus, reason: str) -> None:
        self.status = status
        super().__init__(reason)


def illegal(reason: str) -> PutRefusedError:
    """Return the refusal of a message that no store takes."""
    return PutRefusedError(PutStatus.MESSAGE_ILLEGAL, reason)


class PutAdmission:
    """Checks messages before they are appended."""

    def __init__(
        self, config: StoreConfig, queues: QueueTable, *, delay_levels: DelayLevels
    ) -> None:
        self._queues = queues
        self._delay_levels = delay_levels
        self.multi_dispatch = config.enable_multi_dispatch
        """Whether messages may enter further queues."""
        self._lmq_count_max = config.lmq_queue_count_max
        self._claimed: set[tuple[str, int]] = set()
        """Queues that messages of other topics were the first to enter, since the start."""
        self.limit_sizes(config)
        self.topic_parts: dict[str, bytes] = {}
        """Topics that have passed all checks, as they stand in a record."""

    def limit_sizes(self, config: StoreConfig) -> None:
        """Take the largest message and record from settings."""
        self.body_size_max = config.max_message_size
        self.record_size_max = min(
            config.max_message_size + RECORD_OVERHEAD_MAX,
            config.commit_log_file_size - BLANK_SIZE,
        )

    def check_lengths(self, topic: str, text: bytes, body_size: int) -> None:
        """Refuse a topic, properties or a body that are too long."""
        if len(topic) > TOPIC_LENGTH_MAX:
            raise illegal(f"topic of {len(topic)} characters, at most {TOPIC_LENGTH_MAX}")
        if len(text) > PROPERTIES_LENGTH_MAX:
            # RocketMQ counts UTF-16 characters first, bytes second, with different answers.
            characters = len(text.decode("utf-8", "replace").encode("utf-16-le")) // 2
            if characters > PROPERTIES_LENGTH_MAX:
                raise illegal(f"properties of {characters} characters")
            raise PutRefusedError(
                PutStatus.PROPERTIES_SIZE_EXCEEDED, f"properties of {len(text)} bytes"
            )
        if body_size > self.body_size_max:
            raise illegal(f"body of {body_size} bytes, at most {self.body_size_max}")

    def check_queue_id(self, queue_id: int) -> None:
        """Refuse a queue id that is negative, or that a record cannot hold."""
        if queue_id < 0:
            raise illegal(f"queue id {queue_id} is negative")
        if queue_id > QUEUE_ID_MAX:
            raise illegal(f"queue id {queue_id}, at most {QUEUE_ID_MAX}")

    def check_record_size(self, size: int) -> None:
        """Refuse a record that is too large for the store or for one log file."""
        if size > self.record_size_max:
            raise illegal(f"record of {size} bytes, at most {self.record_size_max} fit")

    def check_topic(self, topic: str) -> None:
        """Refuse a name that cannot be the name of a queue directory."""
        if not is_safe_name(topic):
            raise illegal(f"not a topic name: {topic!r}")

    def check_further_count(self, count: int) -> None:
        """Refuse a message that enters too many queues besides its own."""
        if count > FURTHER_COUNT_MAX:
            raise illegal(f"{count} further queues, at most {FURTHER_COUNT_MAX}")

    def check_further_offsets(self, text: bytes) -> None:
        """Refuse a message of a batch that says at which offsets of further queues it is.

        A store writes that for a message that it enters there.  Queues that are made anew from the
        log would believe it of any other message too.
        """
        if MULTI_DISPATCH in text and MULTI_OFFSETS in text:
            raise illegal("a message of a batch enters no further queues")

    def claim_queues(
        self, queues: Iterable[tuple[str, int]], known: Container[tuple[str, int]]
    ) -> None:
        """Note the queues that a message enters; refuse it if it would make too many new ones.

        What counts are light queues, and, by themselves, others that messages of other topics were
        the first to enter: neither needs an entry in a table, and each has files.  ``known`` has
        all queues that some message has entered, be they there already or not.
        """
        table = self._queues
        new = {one for one in queues if one not in known and table.get(*one) is None}
        if not new:
            return
        # Light queues that are there are counted by their table, and some were deleted since.
        if len(self._claimed) + len(new) + table.lmq_count > self._lmq_count_max:
            self._claimed = {
                one
                for one in self._claimed
                if one in known and (not _is_light(one) or table.get(*one) is None)
            }
        light, others = table.lmq_count, 0
        for one in self._claimed | new:
            light, others = light + _is_light(one), others + (not _is_light(one))
        if max(light, others) > self._lmq_count_max:
            raise PutRefusedError(
                PutStatus.LMQ_QUEUE_COUNT_EXCEEDED,
                f"{light} light and {others} further queues, of each at most {self._lmq_count_max}",
            )
        self._claimed |= new

    def topic_part(self, topic: str) -> bytes:
        """Check a topic and return it as it stands in a record, with its length before it."""
        self.check_topic(topic)
        try:
            encoded = topic.encode()
        except UnicodeEncodeError:
            raise illegal(f"not a topic name: {topic!r}") from None
        if len(encoded) > TOPIC_LENGTH_MAX:
            raise illegal(f"topic of {len(encoded)} bytes, at most {TOPIC_LENGTH_MAX}")
        if len(self.topic_parts) >= TOPIC_CACHE_MAX:
            self.topic_parts.clear()
        part = self.topic_parts[topic] = encode_topic(encoded)
        return part

    def delay_level(self, properties: Mapping[str, str]) -> int:
        """Return the delay level of a message, zero for none; refuse one that is no number."""
        if DELAY not in properties:
            return 0
        text = properties[DELAY]
        level = self._delay_levels.level_of(text)
        if level is None:
            raise illegal(f"delay level {text[:32]!r} is not a number")
        return level


def _is_light(queue: tuple[str, int]) -> bool:
    return queue[0].startswith(LMQ_PREFIX)
