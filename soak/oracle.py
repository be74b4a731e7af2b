"""What must hold of messages, whatever happens to a broker; it knows nothing of the broker.

Producers tell before and after each send, consumers tell what they got, operators tell what they
deleted.  A message that was acknowledged and not deleted has to reach every consumer that follows
its topic, and has to lie at the place that the answer named when everything is read at the end.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

KEPT_VIOLATION_COUNT: Final = 20
"""Violations of one kind that are kept as text; all of them are counted."""


class MessageId(NamedTuple):
    """Names a message: the producer that sent it, and the producer's own number for it."""

    producer: str
    number: int

    @property
    def text(self) -> str:
        """The id as it stands at the beginning of a body."""
        return f"{self.producer}:{self.number}"

    @classmethod
    def parse(cls, body: str) -> "MessageId":
        """Return the id at the beginning of a body; ValueError if there is none."""
        producer, separator, number = body.partition(" ")[0].rpartition(":")
        if not separator:
            raise ValueError(f"no message of a soak run: {body[:40]!r}")
        return cls(producer, int(number))


class Queue(NamedTuple):
    """A queue of a topic; a run has one broker."""

    topic: str
    queue_id: int


class Place(NamedTuple):
    """Where an answer said that a message was stored."""

    queue: Queue
    offset: int
    physical_offset: int | None = None
    """In the log, where the answer was asked for it."""


class _Sending(NamedTuple):
    topic: str
    generation: int
    """How often the topic had been deleted when the send began."""


class Oracle:
    """Keeps what was promised, and collects what was broken.

    ``followers`` has the consumers by the topics that they follow from the beginning.
    """

    def __init__(self, followers: Mapping[str, Iterable[str]]) -> None:
        self._followers = {topic: tuple(names) for topic, names in followers.items()}
        everyone = {name for names in self._followers.values() for name in names}
        self._last_number: dict[str, int] = {}
        self._sending: dict[MessageId, _Sending] = {}
        self._early: dict[str, set[MessageId]] = {name: set() for name in everyone}
        """What a consumer got before the producer had its answer."""
        self._unannounced: dict[MessageId, set[str]] = {}
        """What a consumer got before we heard that somebody sends it, and the consumers."""
        self._owed: dict[str, dict[MessageId, Place | None]] = {name: {} for name in everyone}
        """What was acknowledged and has not reached a consumer yet."""
        self._stored: dict[Queue, dict[int, MessageId]] = defaultdict(dict)
        self._physical_offsets: dict[MessageId, int] = {}
        self._newest: dict[tuple[str, Queue], int] = {}
        """The last offset that a producer was told for a queue."""
        self._generations: Counter[str] = Counter()
        self._being_deleted: set[str] = set()
        self._may_expire = False
        self._is_paid = asyncio.Event()
        self.counts: Counter[str] = Counter()
        self.violations: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = defaultdict(list)

    def broken(self, kind: str, text: str) -> None:
        """Note that something does not hold."""
        self.violations[kind] += 1
        if len(self.examples[kind]) < KEPT_VIOLATION_COUNT:
            self.examples[kind].append(text)

    # -- producers ---------------------------------------------------------------------------

    def sending(self, message: MessageId, topic: str) -> None:
        """Note that a producer is about to send a message; its numbers ascend."""
        self._last_number[message.producer] = message.number
        self._sending[message] = _Sending(topic, self._generations[topic])
        for consumer in self._unannounced.pop(message, ()):
            self._early[consumer].add(message)
        self.counts["sent"] += 1

    def acknowledged(self, message: MessageId, place: Place | None) -> None:
        """Note that a message is stored; without a place it will be moved to its own."""
        began = self._sending.pop(message)
        self.counts["acknowledged"] += 1
        is_deleted = began.generation != self._generations[began.topic]
        if is_deleted or began.topic in self._being_deleted:
            # Its topic was deleted meanwhile, and the message may have gone with it.
            self.counts["deleted"] += 1
            self._forget_early(message)
            return
        if place is not None:
            self._note_place(message, place)
        for consumer in self._followers.get(began.topic, ()):
            if message in self._early[consumer]:
                self._early[consumer].discard(message)
            else:
                self._owed[consumer][message] = place

    def failed(self, message: MessageId) -> None:
        """Note that there was no answer, or a refusal: a message may be stored or not."""
        del self._sending[message]
        self.counts["not acknowledged"] += 1
        self._forget_early(message)

    def _forget_early(self, message: MessageId) -> None:
        for early in self._early.values():
            early.discard(message)

    def _note_place(self, message: MessageId, place: Place) -> None:
        if place.physical_offset is not None:
            self._physical_offsets[message] = place.physical_offset
        other = self._stored[place.queue].setdefault(place.offset, message)
        if other != message:
            self.broken("one place for two messages", f"{place}: {other.text}, {message.text}")
        newest = self._newest.get((message.producer, place.queue), -1)
        if place.offset <= newest:
            text = f"{message.text} at {place}, after the answer for {newest}"
            self.broken("order of a producer", text)
        self._newest[message.producer, place.queue] = place.offset

    # -- consumers ---------------------------------------------------------------------------

    def delivered(self, consumer: str, message: MessageId) -> None:
        """Note that a consumer has got a message."""
        self.counts[f"delivered to {consumer}"] += 1
        if message.number > self._last_number.get(message.producer, -1):
            self._unannounced.setdefault(message, set()).add(consumer)
        elif message in self._sending:
            self._early[consumer].add(message)
        else:
            self._owed[consumer].pop(message, None)
            if not self._owed[consumer]:
                self._is_paid.set()

    async def nothing_owed(self) -> None:
        """Wait until every consumer has got everything that was acknowledged."""
        while any(self._owed.values()):
            self._is_paid.clear()
            await self._is_paid.wait()

    # -- operators ---------------------------------------------------------------------------

    def topic_deleted(self, topic: str) -> None:
        """Note the end of a deletion: what was sent before may be gone, what comes now may not."""
        self._generations[topic] += 1
        self._being_deleted.discard(topic)

    def topic_deletion_began(self, topic: str) -> None:
        """Note that somebody asks for a deletion: it may happen at any time until its answer."""
        self._being_deleted.add(topic)
        for queue in [queue for queue in self._stored if queue.topic == topic]:
            self.counts["deleted"] += len(self._stored.pop(queue))
        for key in [key for key in self._newest if key[1].topic == topic]:
            del self._newest[key]

    def expiry_requested(self) -> None:
        """Note that the broker may delete old files of its log from now on."""
        self._may_expire = True

    def begins_at(self, queue: Queue, offset: int) -> None:
        """Note where a queue begins now: messages before that are gone."""
        stored = self._stored[queue]
        gone = [one for one in stored if one < offset]
        if gone and not self._may_expire:
            self.broken("expiry that nobody asked for", f"{queue} begins at {offset}")
            return
        for one in gone:
            del stored[one]
        self.counts["expired"] += len(gone)
        for owed in self._owed.values():
            for message, place in list(owed.items()):
                if place is not None and place.queue == queue and place.offset < offset:
                    del owed[message]
                    self.counts["expired before it was consumed"] += 1

    def log_begins_at(self, physical_offset: int) -> None:
        """Note where the log begins now: messages before that are gone.

        A queue that has lost all of its messages still says that it begins where it did.
        """
        for stored in self._stored.values():
            for offset, message in list(stored.items()):
                if self._physical_offsets.get(message, physical_offset) < physical_offset:
                    assert self._may_expire, "nobody has asked for it"
                    del stored[offset]
                    self.counts["expired"] += 1

    # -- the end -----------------------------------------------------------------------------

    def finish(self, found: Mapping[Queue, Mapping[int, MessageId]]) -> None:
        """Compare what is owed with everything that a reader has found from end to end."""
        for message in self._unannounced:
            self.broken("message that nobody sent", message.text)
        for consumer, owed in self._owed.items():
            for message, place in owed.items():
                self.broken(
                    "lost on the way", f"{message.text} of {place} never came to {consumer}"
                )
        for queue, stored in self._stored.items():
            there = found.get(queue, {})
            for offset, message in stored.items():
                other = there.get(offset)
                if other != message:
                    text = f"{message.text} at {Place(queue, offset)}: {other and other.text}"
                    self.broken("lost from its queue", text)
        self.counts["checked at their place"] = sum(map(len, self._stored.values()))
