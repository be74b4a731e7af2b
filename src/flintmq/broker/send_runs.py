"""Plain sends of one read, gathered and stored together.

Most of what a broker gets are sends that hold no surprise: the topic is known, nothing is delayed
or transactional, nobody waits for the disk.  They are recognised by the header fields as they
came, without a header object: a send whose fields were seen before, save times, properties and
body, has passed all checks before.  Everything else goes to the processors, and so does a whole
run that the store cannot take just then.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from flintmq.broker.hosts import packed_peer
from flintmq.broker.stored_answer import SharedAnswer, encode_stored_answer
from flintmq.format.codes import RequestCode
from flintmq.format.command import command_of_members
from flintmq.format.errors import FormatError
from flintmq.format.headers.send import SendMessageRequestV2
from flintmq.format.host import IPV4_HOST_SIZE
from flintmq.format.java import tags_code
from flintmq.format.message_id import encode_offset_ids
from flintmq.format.properties import NAME_END, PAIR_END
from flintmq.format.sys_flag import COMPRESSED, HOSTS_MASK, MULTI_TAGS, TRANSACTION_MASK
from flintmq.model.property_names import (
    CLUSTER,
    DELAY,
    INNER_MULTI_DISPATCH,
    KEYS,
    TAGS,
    TRAN_MSG,
    UNIQ_KEY,
    WAIT,
)
from flintmq.model.topic_config import Perm
from flintmq.model.topics import RETRY_PREFIX
from flintmq.store.config import FlushMode
from flintmq.store.run_encoding import RunBatch, RunMessage, RunTarget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.broker.parts import BrokerParts
    from flintmq.model.data_version import DataVersion
    from flintmq.remoting import Connection
    from flintmq.store.run_encoding import Run

LANE_COUNT_MAX: Final = 8192
"""Kinds of sends that are remembered; clients can make up as many as they like."""

SHAPE_NAME_COUNT_MAX: Final = 64
"""Properties of a message whose names are remembered."""

BATCH_TEXT_LENGTH_MAX: Final = 1024
"""Properties of batches that are remembered are no longer than this."""

_CODES: Final = frozenset({int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.SEND_BATCH_MESSAGE)})
_REPEATING: Final = tuple("befhjkm")
"""The fields that sends of one kind have in common: topic, queue, flags and the like."""
_BORN_DIGITS_MAX: Final = 18
_NOT_PLAIN: Final = frozenset({DELAY, TRAN_MSG, INNER_MULTI_DISPATCH, CLUSTER})
_are_pairs: Final = re.compile(
    f"(?:[^{NAME_END}{PAIR_END}]+{NAME_END}[^{NAME_END}{PAIR_END}]+{PAIR_END})*"
).fullmatch
"""Matches names and values in turn, none of them empty."""
_WAIT_START: Final = PAIR_END + WAIT + NAME_END


class Lane(NamedTuple):
    """A kind of send that has passed all checks."""

    target: RunTarget
    flag: int
    is_batch: bool


class Shape(NamedTuple):
    """What the names of the properties of a message say, in their order.

    Of a name that matters it has where its value stands in the property string, 0 for nowhere.
    """

    is_plain: bool
    """Whether names are unique and none means more than the views have to know."""
    unique_at: int
    keys_at: int
    tags_at: int
    wait_at: int

    @classmethod
    def of(cls, names: tuple[str, ...]) -> Self:
        """Judge some names."""
        places = {name: 2 * number + 1 for number, name in enumerate(names)}
        is_plain = (
            len(places) == len(names)
            and "" not in places
            and _NOT_PLAIN.isdisjoint(places)
            # Its pair is cut out with the end of the one before it.
            and places.get(WAIT) != 1
        )
        return cls(is_plain, *[places.get(name, 0) for name in (UNIQ_KEY, KEYS, TAGS, WAIT)])


class SendRuns:
    """Takes plain sends out of what a connection brings, and answers them at the end of a run."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self._lanes: dict[tuple[str | None, ...], Lane] = {}
        self._batch_texts: dict[str, bytes] = {}
        self._shapes: dict[tuple[str, ...], Shape] = {}
        self._connection: Connection | None = None
        self._born_host = b""
        self._born_text, self._born = "0", 0
        self._messages: list[RunMessage | RunBatch] = []
        self._requests: list[tuple[dict[str, Any], bytes, bytes]] = []
        """Members, header and body of each message gathered."""
        self._shared = SharedAnswer.of(parts.config)
        self._cluster_part = ""
        self._topics_version: DataVersion | None = None
        self._flushes_later = parts.store.config.flush_mode is FlushMode.ASYNC
        self._body_size_max = parts.store.config.max_message_size

    # -- gathering ---------------------------------------------------------------------------

    def take(
        self, connection: Connection, members: dict[str, Any], header: bytes, body: bytes
    ) -> bool:
        """Take a request over if it is a plain send."""
        if members.get("code") not in _CODES or members.get("flag") != 0 or not self._flushes_later:
            return False
        if connection is not self._connection or not self._messages:
            self._begin(connection)
        try:
            ext_fields = members["extFields"]
            kind = tuple(map(ext_fields.get, _REPEATING))
            lane = self._lanes.get(kind) or self._new_lane(kind, ext_fields)
            if lane is None or members["opaque"].__class__ is not int:
                return False
            born_text, text = ext_fields["g"], ext_fields.get("i", "")
            born = self._born if born_text == self._born_text else self._parse_born(born_text)
            make = self._batch if lane.is_batch else self._single
            message = make(lane, born, text, body)
        except (KeyError, TypeError, AttributeError, ValueError):
            return False  # Fields are missing, or are of other types: the processor says which.
        if message is None:
            return False
        self._messages.append(message)
        self._requests.append((members, header, body))
        return True

    def _parse_born(self, text: str) -> int:
        """Read a time in milliseconds; many messages of a run have the same."""
        if not (text.isascii() and text.isdigit() and len(text) <= _BORN_DIGITS_MAX):
            raise ValueError(text)
        self._born_text, self._born = text, int(text)
        return self._born

    def _begin(self, connection: Connection) -> None:
        """Start a run: look at what all of its sends depend on."""
        self.finish()
        self._connection = connection
        self._born_host = packed_peer(connection)
        config, version = self._parts.config, self._parts.topics.version
        if config is not self._shared.config or version is not self._topics_version:
            self._lanes.clear()
            self._batch_texts.clear()
            self._shared = SharedAnswer.of(config)
            self._topics_version = version
            self._cluster_part = f"{CLUSTER}{NAME_END}{config.cluster}"

    def _new_lane(self, kind: tuple[str | None, ...], ext_fields: dict[str, str]) -> Lane | None:
        """Check a kind of send that is new; None if it is not plain."""
        try:
            header = SendMessageRequestV2.decode(ext_fields)
        except FormatError:
            return None
        parts, config = self._parts, self._shared.config
        topic = parts.topics.get(header.topic)
        sys_flag = header.sys_flag
        if (
            topic is None
            or not parts.topics.may_be_sent_to(header.topic)
            or header.topic.startswith(RETRY_PREFIX)
            or config.accept_sends_from_ms
            or (topic.order and not config.permission & Perm.WRITE)
            or not 0 <= header.queue_id < max(topic.write_queue_count, topic.read_queue_count)
            or sys_flag & (TRANSACTION_MASK | HOSTS_MASK)
            or (header.batch and sys_flag & COMPRESSED)
            or len(self._born_host) != IPV4_HOST_SIZE
            or len(parts.store_host) != IPV4_HOST_SIZE
        ):
            return None
        if topic.filter_type == "MULTI_TAG":
            sys_flag |= MULTI_TAGS
        target = RunTarget(
            header.topic,
            header.queue_id,
            sys_flag=sys_flag,
            reconsume_times=header.reconsume_times or 0,
        )
        if len(self._lanes) >= LANE_COUNT_MAX:
            self._lanes.clear()
        lane = self._lanes[kind] = Lane(target, header.flag, header.batch)
        return lane

    def _single(self, lane: Lane, born: int, text: str, body: bytes) -> RunMessage | None:
        plain = self._plain_text(text)
        if plain is None:
            return None
        # NamedTuple's own constructor takes twice the time of the tuple's.
        return tuple.__new__(
            RunMessage, (lane.target, lane.flag, born, self._born_host, body, *plain)
        )

    def _batch(self, lane: Lane, born: int, text: str, body: bytes) -> RunBatch | None:
        if len(body) > self._body_size_max:
            return None
        batch_text = self._batch_texts.get(text)
        if batch_text is None:
            plain = self._plain_text(text)
            if plain is None or plain[1:] != ([], 0) or len(text) > BATCH_TEXT_LENGTH_MAX:
                return None
            if len(self._batch_texts) >= LANE_COUNT_MAX:
                self._batch_texts.clear()
            batch_text = self._batch_texts[text] = plain[0]
        return RunBatch(lane.target, born, self._born_host, body, batch_text)

    def _plain_text(self, text: str) -> tuple[bytes, Sequence[bytes], int] | None:
        """Return properties as they are stored, their keys and tags code; None if not plain.

        It is what `received_properties` and the appender make of them.  The messages of a
        producer have the same names in the same order, so these are judged once.
        """
        if text and text[-1] != PAIR_END:
            text += PAIR_END
        parts = text.replace(NAME_END, PAIR_END).split(PAIR_END)
        names = tuple(parts[:-1:2])
        shape = self._shapes.get(names) or self._new_shape(names)
        if not shape.is_plain or _are_pairs(text) is None:
            return None
        _, unique_at, keys_at, tags_at, wait_at = shape
        if wait_at:
            text = text.replace(f"{_WAIT_START}{parts[wait_at]}{PAIR_END}", PAIR_END, 1)
        keys = [parts[unique_at].encode()] if unique_at else []
        if keys_at:
            keys += [key.encode() for key in parts[keys_at].split(" ") if key]
        return (
            (text + self._cluster_part).encode(),
            keys,
            tags_code(parts[tags_at]) if tags_at else 0,
        )

    def _new_shape(self, names: tuple[str, ...]) -> Shape:
        if len(self._shapes) >= LANE_COUNT_MAX:
            self._shapes.clear()
        shape = Shape.of(names)
        if len(names) <= SHAPE_NAME_COUNT_MAX:
            self._shapes[names] = shape
        return shape

    # -- storing -----------------------------------------------------------------------------

    def finish(self) -> None:
        """Store and answer what was gathered; call it before anything else is handled."""
        if not self._messages:
            return
        messages, self._messages = self._messages, []
        requests, self._requests = self._requests, []
        connection, parts = self._connection, self._parts
        assert connection is not None
        run = parts.store.put_run(messages, parts.store_host)
        if run is None:
            for request in requests:
                connection.handle(command_of_members(*request))
            return
        for (topic, _), part in run.parts.items():
            parts.statistics.add_put(topic, part.count, part.size)
        opaques = [members["opaque"] for members, _, _ in requests]
        connection.send_all(self._answers(opaques, messages, run))

    def _answers(
        self, opaques: Sequence[int], messages: Sequence[RunMessage | RunBatch], run: Run
    ) -> list[bytes]:
        shared, host, at = self._shared, self._parts.store_host, 0
        physical_offsets, queue_offsets = run.physical_offsets, run.queue_offsets
        answers = []
        for opaque, message, count in zip(opaques, messages, run.counts, strict=True):
            ids = encode_offset_ids(host, physical_offsets[at : at + count])
            queue_id = message[0].queue_id
            answers.append(encode_stored_answer(shared, opaque, ids, queue_id, queue_offsets[at]))
            at += count
        return answers
