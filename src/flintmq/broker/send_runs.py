"""Plain sends of one read, gathered and stored together.

Most of what a broker gets are sends that hold no surprise: the topic is known, nothing is delayed
or transactional, nobody waits for the disk.  They are recognised by the header fields as they
came, without a header object: a send whose fields were seen before, save times, properties and
body, has passed all checks before.  Everything else goes to the processors, and so does a whole
run that the store cannot take just then.

Where much comes, machine code encodes runs and answers (`flintmq.broker.compiled_sends`).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from flintmq.broker.hosts import packed_peer
from flintmq.broker.later import Later
from flintmq.broker.plain_properties import PlainProperties
from flintmq.broker.stored_answer import SharedAnswer, encode_stored_answer
from flintmq.format.codes import RequestCode
from flintmq.format.command import command_of_members
from flintmq.format.errors import FormatError
from flintmq.format.headers.send import SendMessageRequestV2
from flintmq.format.host import IPV4_HOST_SIZE
from flintmq.format.message_id import packed_offset_ids
from flintmq.format.properties import NAME_END
from flintmq.format.remoting_errors import RemoteProtocolError
from flintmq.format.sys_flag import COMPRESSED, HOSTS_MASK, MULTI_TAGS, TRANSACTION_MASK
from flintmq.model.property_names import CLUSTER
from flintmq.model.topic_config import Perm
from flintmq.model.topics import RETRY_PREFIX
from flintmq.store.config import FlushMode
from flintmq.store.run_encoding import RunBatch, RunMessage, RunSends, RunTarget, encode_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.broker.compiled_sends import CompiledSends
    from flintmq.broker.parts import BrokerParts
    from flintmq.model.data_version import DataVersion
    from flintmq.remoting import Connection
    from flintmq.store.run_encoding import Placed, Run
    from flintmq.store.runs import Encode

LANE_COUNT_MAX: Final = 8192
"""Kinds of sends that are remembered; clients can make up as many as they like."""

BATCH_TEXT_LENGTH_MAX: Final = 1024
"""Properties of batches that are remembered are no longer than this."""

COMPILED_COUNT_MIN: Final = 8
"""Messages from which on machine code is worth its call."""

_CODES: Final = frozenset({int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.SEND_BATCH_MESSAGE)})
_REPEATING: Final = tuple("befhjkm")
"""The fields that sends of one kind have in common: topic, queue, flags and the like."""
_BORN_DIGITS_MAX: Final = 18


class Lane(NamedTuple):
    """A kind of send that has passed all checks."""

    target: RunTarget
    is_batch: bool


class Taken(NamedTuple):
    """A send that was taken, and the request it came as."""

    lane: Lane
    born: int
    text: str
    body: bytes
    members: dict[str, Any]
    header: bytes


def _load_compiled() -> CompiledSends:
    """Load machine code; it brings numpy and numba with it."""
    from flintmq.broker.compiled_sends import CompiledSends

    return CompiledSends()


class SendRuns:
    """Takes plain sends out of what a connection brings, and answers them at the end of a run."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self._lanes: dict[tuple[str | None, ...], Lane] = {}
        self._batch_texts: dict[str, bytes] = {}
        self._properties = PlainProperties()
        self._compiled = Later(_load_compiled)
        self._may_compile = parts.config.machine_code
        self._connection: Connection | None = None
        self._born_host = b""
        self._born_text, self._born = "0", 0
        self._taken: list[Taken] = []
        self._shared = SharedAnswer.of(parts.config)
        self._last_text = b""
        self._topics_version: DataVersion | None = None
        self._flushes_later = parts.store.config.flush_mode is FlushMode.ASYNC
        self._body_size_max = parts.store.config.max_message_size

    # -- gathering ---------------------------------------------------------------------------

    def take(
        self, connection: Connection, members: dict[str, Any], header: bytes, body: bytes
    ) -> bool:
        """Take a request over if it is a send of a kind that is plain."""
        code = members.get("code")
        # A code of another type is for the processors, which know how to read it.
        if code.__class__ is not int or code not in _CODES:
            return False
        if members.get("flag") != 0 or not self._flushes_later:
            return False
        if connection is not self._connection or not self._taken:
            self._begin(connection)
        try:
            ext_fields = members["extFields"]
            kind = tuple(map(ext_fields.get, _REPEATING))
            lane = self._lanes.get(kind) or self._new_lane(kind, ext_fields)
            if lane is None or members["opaque"].__class__ is not int:
                return False
            born_text, text = ext_fields["g"], ext_fields.get("i", "")
            born = self._born if born_text == self._born_text else self._parse_born(born_text)
        except (KeyError, TypeError, AttributeError, ValueError):
            return False  # Fields are missing, or are of other types: the processor says which.
        if text.__class__ is not str:
            return False
        # NamedTuple's own constructor takes twice the time of the tuple's.
        self._taken.append(tuple.__new__(Taken, (lane, born, text, body, members, header)))
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
            self._properties.last_text = f"{CLUSTER}{NAME_END}{config.cluster}"
            self._last_text = self._properties.last_text.encode()

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
            flag=header.flag,
            reconsume_times=header.reconsume_times or 0,
        )
        if len(self._lanes) >= LANE_COUNT_MAX:
            self._lanes.clear()
        lane = self._lanes[kind] = Lane(target, header.batch)
        return lane

    # -- judging -----------------------------------------------------------------------------

    def _judged(self, taken: Taken) -> RunMessage | RunBatch | None:
        """Return a send as a run has it, None if its properties are not plain."""
        lane, born, text, body, _, _ = taken
        if lane.is_batch:
            return self._batch(taken)
        plain = self._properties.judge(text)
        if plain is None:
            return None
        return tuple.__new__(RunMessage, (lane.target, born, self._born_host, body, *plain))

    def _batch(self, taken: Taken) -> RunBatch | None:
        lane, born, text, body, _, _ = taken
        if len(body) > self._body_size_max:
            return None
        batch_text = self._batch_texts.get(text)
        if batch_text is None:
            plain = self._properties.judge(text)
            if plain is None or plain[1:] != ([], 0) or len(text) > BATCH_TEXT_LENGTH_MAX:
                return None
            if len(self._batch_texts) >= LANE_COUNT_MAX:
                self._batch_texts.clear()
            batch_text = self._batch_texts[text] = plain[0]
        return RunBatch(lane.target, born, self._born_host, body, batch_text)

    # -- storing -----------------------------------------------------------------------------

    def finish(self) -> None:
        """Store and answer what was gathered; call it before anything else is handled."""
        if not self._taken:
            return
        taken, self._taken = self._taken, []
        is_worth_it = len(taken) >= COMPILED_COUNT_MIN or taken[0].lane.is_batch
        compiled = self._compiled.get() if is_worth_it and self._may_compile else None
        if compiled is not None and self._put_compiled(compiled, taken):
            return
        start = 0
        messages: list[RunMessage | RunBatch] = []
        for number, one in enumerate(taken):
            message = self._judged(one)
            if message is not None:
                messages.append(message)
                continue
            self._put(taken[start:number], messages)
            self._handle(one)
            start, messages = number + 1, []
        self._put(taken[start:], messages)

    def _put_compiled(self, compiled: CompiledSends, taken: Sequence[Taken]) -> bool:
        """Store and answer sends by machine code; return whether it could."""
        lanes, borns, texts, bodies, members, _ = zip(*taken, strict=True)
        kinds = {lane.is_batch for lane in lanes}
        if kinds == {True}:
            batches = [batch for one in taken if (batch := self._batch(one)) is not None]
            encode = functools.partial(compiled.encoder.encode_batches, batches)
            return len(batches) == len(taken) and self._store(taken, encode)
        opaques = compiled.opaques([one["opaque"] for one in members])
        if kinds != {False} or opaques is None:
            return False
        sends = RunSends(
            [lane.target for lane in lanes],
            borns,
            bodies,
            [text.encode() for text in texts],
            self._born_host,
            self._last_text,
        )
        encode_sends = functools.partial(compiled.encoder.encode_sends, sends)
        store_host = self._parts.store_host
        stored = self._parts.store.put_run(encode_sends, store_host)
        if stored is None:
            return False
        run, placed = stored
        self._count(run)
        assert self._connection is not None
        self._connection.send(
            compiled.answers(self._shared.json_start, store_host, opaques, placed)
        )
        return True

    def _put(self, taken: Sequence[Taken], messages: Sequence[RunMessage | RunBatch]) -> None:
        """Store and answer sends that were judged, together or else one by one."""
        if taken and not self._store(taken, functools.partial(encode_run, messages)):
            for one in taken:
                self._handle(one)

    def _store(self, taken: Sequence[Taken], encode: Encode[list[Placed]]) -> bool:
        stored = self._parts.store.put_run(encode, self._parts.store_host)
        if stored is None:
            return False
        run, placed = stored
        self._count(run)
        assert self._connection is not None
        self._connection.send_all(self._answers(taken, placed))
        return True

    def _handle(self, taken: Taken) -> None:
        """Let the processors have a send."""
        connection = self._connection
        assert connection is not None
        try:
            command = command_of_members(taken.members, taken.header, taken.body)
        except RemoteProtocolError as error:
            connection.drop(str(error))
        else:
            connection.handle(command)

    def _count(self, run: Run) -> None:
        for (topic, _), part in run.parts.items():
            self._parts.statistics.add_put(topic, part.count, part.size)

    def _answers(self, taken: Sequence[Taken], all_placed: Sequence[Placed]) -> list[bytes]:
        json_start, host = self._shared.json_start, self._parts.store_host
        return [
            encode_stored_answer(
                json_start,
                one.members["opaque"],
                packed_offset_ids(host, placed.physical_offsets),
                one.lane.target.queue_id,
                placed.queue_offset,
            )
            for one, placed in zip(taken, all_placed, strict=True)
        ]
