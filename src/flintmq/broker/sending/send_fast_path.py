"""The fast path of sends: plain ones that came together are stored together.

Most sends hold no surprise: the topic is known, nothing is delayed or transactional, nobody waits
for the disk.  They are recognised by the fields of their headers, without a header object.  A send
whose fields were seen before, save times, properties and body, has been admitted before
(`flintmq.broker.sending.send_admission`), and is gathered at once.  Everything else is left to
the processor, and so is a whole append group that the store cannot take just then.

Machine code encodes groups and then answers too (`flintmq.broker.sending.compiled_answers`).
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final

from flintmq.broker.hosts import packed_peer
from flintmq.broker.sending.compiled_loading import load_compiled_answers, load_compiled_sends
from flintmq.broker.sending.gathered_send import GatheredSend
from flintmq.broker.sending.put_answers import PUT_CODES, less_than_promised
from flintmq.broker.sending.read_parts import answers_by_read, process_alone, take_in_parts
from flintmq.broker.sending.send_admission import admit_send, has_plain_header
from flintmq.broker.sending.stored_answer import SharedAnswer
from flintmq.format.errors import FormatError
from flintmq.format.properties import NAME_END, PAIR_END
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.frame import HeaderType
from flintmq.format.wire.headers.send import SendMessageRequestV2
from flintmq.kernels.background_load import LoadOnDemand
from flintmq.model.property_names import CLUSTER, WAIT
from flintmq.remoting import RefusedError
from flintmq.store.append_group.batch_items import LARGE_BATCH_SIZE
from flintmq.store.append_group.sends import Sends, SendTarget
from flintmq.store.appending.group_appender import NotAppended
from flintmq.store.config import BrokerRole, FlushMode
from flintmq.store.results import PutResult, PutStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from flintmq.broker.context import BrokerContext
    from flintmq.model.data_version import DataVersion
    from flintmq.remoting import ReceivedRequest
    from flintmq.remoting.request_table import RequestSource
    from flintmq.store.append_group.sends import AppendGroup, Queue, QueueSlice, StoredAt

KNOWN_SEND_COUNT_MAX: Final = 8192
"""Kinds of sends that are remembered; clients can make up as many as they like."""
KNOWN_TEXT_LENGTH_MAX: Final = 1024
"""Characters of all fields of a kind that is remembered."""

PART_COUNT_MIN: Final = 8
"""Sends of a part of a group from which on it is tried to append them together."""

COMPILED_ASK_COUNT: Final = 64
"""Turns with sends after which machine code is loaded."""
BUSY_PERIOD_S: Final = 2.0
"""Where SHOWN_GROUPS groups come in so short a time, machine code pays even if each has one send;
that counts as one of the turns above."""

COMPILED_PROGRAM: Final = (
    "from flintmq.broker.sending.compiled_sends import CompiledSends; CompiledSends()"
)
"""Loads all machine code of sends."""

GROUP_COUNT_MAX: Final = 256
COMPILED_GROUP_COUNT_MAX: Final = 8192
"""Messages that are stored in one go, in Python and by machine code: some milliseconds."""
_ITEM_SIZE: Final = 128  # Of a message of a batch: batches are not looked into to be counted.

LEARNED_COUNT_MAX: Final = 64
LEARN_PERIOD_S: Final = 1.0
"""So many headers are looked at in so long a time."""

SHOWN_COUNT_MAX: Final = 4
SHOWN_GROUPS: Final = 1024
"""Of sends to one target so many headers are looked at while so many groups come."""

_name: Final = SendMessageRequestV2.wire_name
_BORN_TIMESTAMP: Final = _name("born_timestamp")
_PROPERTIES: Final = _name("properties")
_RARE: Final = _name("max_reconsume_times")
_VARYING: Final = (_BORN_TIMESTAMP, _PROPERTIES, _RARE, _name("broker_name"))
_NAMES: Final = SendMessageRequestV2.wire_fields()
_KIND_NAMES: Final = tuple(name for name in _NAMES if name not in _VARYING)
"""The fields that sends of one kind have in common: all that a processor would look at."""
_kind_of: Final = itemgetter(*_KIND_NAMES)
_BORN_DIGITS_MAX: Final = 18
_JSON: Final = HeaderType.JSON
_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
_SUCCESS: Final = int(ResponseCode.SUCCESS)
_WAIT_START: Final = f"{WAIT}{NAME_END}"
_connection_of: Final = attrgetter("connection")


class SendFastPath:
    """The bulk handler of sends.

    It gathers plain sends of all connections, and stores and answers them as one append group.
    """

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._late = context.late_sends.waiting
        self._known: dict[tuple[str | None, ...], SendTarget] = {}
        """The kinds of sends that were admitted and are plain."""
        is_wanted = context.store.config.machine_code
        self._compiled = LoadOnDemand(
            load_compiled_sends,
            ask_count=COMPILED_ASK_COUNT if is_wanted else 0,
            program=COMPILED_PROGRAM,
        )
        self._compiled_answers = LoadOnDemand(load_compiled_answers, ask_count=int(is_wanted))
        self._learn_after = 0.0
        self._learned_count = 0
        self._shown: dict[SendTarget, int] = {}
        """How often headers of sends to a target were looked at lately."""
        self._group_count = 0
        self._counted_since = -BUSY_PERIOD_S
        """When the last SHOWN_GROUPS groups began to come."""
        self._began = 0.0
        """When the sends of a group have come."""
        self._connection: RequestSource | None = None
        self._born_host = b""
        self._born_text, self._born_timestamp = "0", 0
        self._gathered: list[GatheredSend] = []
        self._message_count, self._group_count_max = 0, GROUP_COUNT_MAX
        self._shared = SharedAnswer.of(context.config)
        self._last_text = b""
        self._topics_version: DataVersion | None = None
        self._waits = self._waits_now()
        """Whether answers leave only when the messages are as durable as promised."""

    def _waits_now(self) -> bool:
        config = self._context.store.config
        return config.flush_mode is FlushMode.SYNC or config.broker_role is BrokerRole.SYNC_MASTER

    # -- gathering ---------------------------------------------------------------------------

    def gather(self, connection: RequestSource, request: ReceivedRequest) -> bool:
        """Gather a send if it is of a kind that is plain."""
        if request.flag or self._late or _RARE in request.raw_fields:
            return False
        if not self._gathered:
            self._begin()
        if connection is not self._connection:
            self._connection = connection
            self._born_host = packed_peer(connection)
        fields = request.raw_fields
        try:
            try:
                kind = _kind_of(fields)
            except KeyError:
                kind = tuple(map(fields.get, _KIND_NAMES))
            target = self._known.get(kind) or self._learn(kind, fields)
            if target is None:
                return False
            born_text, text = fields[_BORN_TIMESTAMP], fields.get(_PROPERTIES, "")
            if born_text != self._born_text:
                self._parse_born_timestamp(born_text)
        except (KeyError, TypeError, AttributeError, ValueError):
            return False  # Fields are missing, or are of other types: the processor says which.
        if text.__class__ is not str or (self._waits and not self._may_wait(text)):
            return False
        if (
            self._compiled.loaded is not None
            and request.header
            and self._shown.get(target, 0) < SHOWN_COUNT_MAX
        ):
            self._show(request, target)
        # NamedTuple's own constructor takes twice the time of the tuple's.
        gathered = tuple.__new__(
            GatheredSend,
            (target, self._born_timestamp, text, request, connection, self._born_host),
        )
        if target.is_batch and len(request.body) > LARGE_BATCH_SIZE:
            return self._store_large(gathered)
        self._gathered.append(gathered)
        self._message_count += len(request.body) // _ITEM_SIZE + 1 if target.is_batch else 1
        if self._message_count >= self._group_count_max:
            self.finish()
        return True

    def _show(self, request: ReceivedRequest, target: SendTarget) -> None:
        """Let machine code learn what headers of such sends look like.

        Clients can make up headers as they like, so only so many are looked at in a while.
        """
        compiled = self._compiled.loaded
        assert compiled is not None
        self._shown[target] = self._shown.get(target, 0) + 1
        now = self._context.clock.monotonic()
        if now >= self._learn_after:
            self._learn_after, self._learned_count = now + LEARN_PERIOD_S, 0
            if not compiled.has_room:
                compiled.forget()
                self._shown.clear()
        if self._learned_count < LEARNED_COUNT_MAX:
            self._learned_count += 1
            compiled.learn(request.header_type, request.header, target, self._last_text)

    def _may_wait(self, text: str, more: int = 0) -> bool:
        """Whether a send waits for the disk with others; one that need not wait is put alone."""
        _, found, rest = text.partition(_WAIT_START)
        if found and (rest.partition(PAIR_END)[0] != "true" or _WAIT_START in rest):
            return False
        context = self._context
        if context.puts.is_disk_stuck:
            return False  # The processor refuses it, unless the settings say otherwise.
        waiting_count = context.puts.waiting_count + len(self._gathered) + more
        return waiting_count < context.config.send_queue_capacity

    def _parse_born_timestamp(self, text: str) -> None:
        """Read a time in milliseconds; many messages of a group have the same."""
        if not (text.isascii() and text.isdigit() and len(text) <= _BORN_DIGITS_MAX):
            raise ValueError(text)
        self._born_text, self._born_timestamp = text, int(text)

    def _begin(self) -> None:
        """Begin an append group: look at what all of its sends depend on."""
        self._began = self._context.latencies.began
        self._group_count += 1
        self._message_count = 0
        if self._compiled.loaded is not None:
            self._group_count_max = COMPILED_GROUP_COUNT_MAX
        if self._group_count % SHOWN_GROUPS == 0:
            self._shown.clear()
            now = self._context.clock.monotonic()
            if now - self._counted_since < BUSY_PERIOD_S:
                self._compiled.get()
            self._counted_since = now
        config, version = self._context.config, self._context.topics.version
        if config is not self._shared.config or version is not self._topics_version:
            self._known.clear()
            self._shown.clear()
            if (compiled := self._compiled.loaded) is not None:
                compiled.forget()
            self._shared = SharedAnswer.of(config)
            self._waits = self._waits_now()
            self._topics_version = version
            self._last_text = f"{CLUSTER}{NAME_END}{config.cluster}".encode()

    def _learn(self, kind: tuple[Any, ...], fields: Mapping[str, Any]) -> SendTarget | None:
        """Have a new kind of send admitted; return None if it is refused or not plain."""
        if any(value.__class__ is not str for value in kind if value is not None):
            return None
        context = self._context
        try:
            header = SendMessageRequestV2.decode(fields)
            if not has_plain_header(header) or header.topic not in context.topics:
                return None
            if not context.topics.is_saved(header.topic):
                # The answers to these sends wait for the topic to be on the disk.
                return None
            admitted = admit_send(context, header)
        except (FormatError, RefusedError):
            return None
        target = SendTarget(
            header.topic,
            admitted.queue_id,
            sys_flag=admitted.sys_flag,
            flag=header.flag,
            reconsume_times=header.reconsume_times or 0,
            is_batch=header.batch,
        )
        if sum(map(len, filter(None, kind))) <= KNOWN_TEXT_LENGTH_MAX:
            if len(self._known) >= KNOWN_SEND_COUNT_MAX:
                self._known.clear()
            self._known[kind] = target
        return target

    # -- storing -----------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether `take` has machine code, by which even a single send costs less."""
        return self._compiled.loaded is not None

    def take(self, reads: Sequence[tuple[RequestSource, bytes]]) -> Sequence[int]:
        """Handle sends of known headers by machine code, from frame to answer.

        Return how many bytes of each read that was; nothing where it cannot be done just now.
        """
        if self._compiled.get() is None or self._late:
            return ()
        self._begin()
        if (handled := self._take(reads)) is not None:
            return handled
        return take_in_parts(reads, self._take, self._context.store.dispatch)

    def _take(self, reads: Sequence[tuple[RequestSource, bytes]]) -> Sequence[int] | None:
        """Do what `take` does; None, and nothing done, where no group of theirs can be stored."""
        compiled = self._compiled.loaded
        if compiled is None or self._late:
            return ()
        walked = compiled.walk([data for _, data in reads], waits=self._waits)
        if not walked.send_count:
            return walked.handled
        if self._waits and not self._may_wait("", walked.send_count):
            return ()
        context = self._context
        hosts = tuple([packed_peer(connection) for connection, _ in reads])

        def answer(group: AppendGroup) -> None:
            joined, ends = compiled.answers(group, self._shared.header, context.store_host)
            answers = answers_by_read(reads, walked.send_ends, joined, ends)
            self._answer(walked.send_count, group, answers)

        group = context.store.append_encoded(
            lambda position: compiled.encode(walked, position, hosts),
            context.store_host,
            appended=answer,
        )
        if isinstance(group, NotAppended):
            return () if group.is_special else None
        return walked.handled

    def finish(self) -> None:
        """Store and answer what was gathered; call it before anything else is handled."""
        if not self._gathered:
            return
        gathered, self._gathered = self._gathered, []
        self._connection = None  # It is not kept longer than its sends.
        special_rows = self._store(gathered)
        # What stands between special sends can still be stored together.
        start = 0
        for row in special_rows:
            self._store_or_process(gathered[start:row])
            self._process(gathered[row])
            start = row + 1
        if special_rows:
            self._store_or_process(gathered[start:])

    def _store_large(self, gathered: GatheredSend) -> bool:
        """Store and answer a batch that may be large alone, and at once.

        False where only machine code could, and is not there or cannot: then it may take several
        turns, in which what its connection sends behind it has to wait.
        """
        self.finish()
        return self._append([gathered]) is None

    def _store_or_process(self, gathered: Sequence[GatheredSend]) -> None:
        """Store and answer sends of which none is special."""
        if gathered and self._store(gathered):
            for one in gathered:
                self._process(one)

    def _store(self, gathered: Sequence[GatheredSend]) -> Sequence[int]:
        """Store and answer sends; where some are special, do nothing but return their numbers."""
        special_rows = self._append(gathered)
        if special_rows is None:
            return ()
        if not special_rows:
            self._store_parts(gathered)
        return special_rows

    def _store_parts(self, gathered: Sequence[GatheredSend]) -> None:
        """Store and answer sends that do not fit as one group, mostly because a file is full.

        A send that goes its ordinary way brings the next file; others fit before and behind it.
        """
        if len(gathered) < PART_COUNT_MIN:
            for one in gathered:
                self._process(one)
            # Groups are appended only where the queues are as far as the log.
            self._context.store.dispatch()
            return
        middle = len(gathered) // 2
        for part in (gathered[:middle], gathered[middle:]):
            # Who waits for a file of the log must not be overtaken.
            special_rows = () if self._late else self._append(part)
            if special_rows is not None:
                self._store_parts(part)

    def _append(self, gathered: Sequence[GatheredSend]) -> Sequence[int] | None:
        """Store and answer sends as one append group.

        None if that is done; else nothing was, and the numbers of special sends are returned, if
        they are the reason.
        """
        targets, born_timestamps, texts, requests, _, born_hosts = zip(*gathered, strict=True)
        sends = Sends(
            targets,
            born_timestamps,
            [request.body for request in requests],
            [text.encode() for text in texts],
            born_hosts,
            self._last_text,
        )
        group = self._context.store.append_group(sends, self._context.store_host)
        if isinstance(group, NotAppended):
            return group.special_rows
        self._answer(len(gathered), group, self._answers(gathered, group))
        return None

    def _answer(
        self,
        count: int,
        group: AppendGroup,
        answers: Iterable[tuple[RequestSource, Sequence[bytes]]],
    ) -> None:
        """Let the answers to the requests of a group leave as soon as they may."""
        if self._waits:
            self._answer_later(count, group, list(answers))
            return
        # The senders' next messages are on the way while the queues follow; but whoever waits for
        # these comes before the senders.
        leaves_now = not self._context.held.wait_for_any(group.slices)
        for connection, frames in answers:
            connection.send_all(frames)
            if leaves_now:
                connection.write_now()
        self._count(group.slices)
        self._context.latencies.note(_SEND, _SUCCESS, self._began, count)

    def _count(self, slices: Mapping[Queue, QueueSlice]) -> None:
        for (topic, queue_id), queue_slice in slices.items():
            self._context.statistics.add_put(topic, queue_id, queue_slice.count, queue_slice.size)

    def _answer_later(
        self,
        count: int,
        group: AppendGroup,
        answers: Sequence[tuple[RequestSource, Sequence[bytes]]],
    ) -> None:
        """Let the answers to a group leave when its promise holds: all of them wait as one."""
        # What stands in the buffers of the encoder is gone by then, but queue slices are its own.
        size, slices = len(group.records), group.slices
        shared, began = self._shared.header, self._began

        def done(result: PutResult) -> None:
            if result.status.stored:
                self._count(slices)
            for connection, frames in answers:
                if result.ok:
                    connection.send_all(frames)
                else:
                    connection.send_all([*less_than_promised(b"".join(frames), result, shared)])
            self._context.latencies.note(_SEND, PUT_CODES[result.status], began, count)

        result = PutResult(
            PutStatus.PUT_OK,
            group.end_offset - size,
            size,
            wait_for_flush=True,
            message_count=group.message_count,
            request_count=count,
        )
        self._context.puts.when_done(result, done)

    def _answers(
        self, gathered: Sequence[GatheredSend], group: AppendGroup
    ) -> Iterator[tuple[RequestSource, Sequence[bytes]]]:
        """Yield the answers of each connection: one piece by machine code, else one by one."""
        if len(gathered) == 1:
            yield gathered[0].connection, self._python_answers(gathered, group.stored)
            return
        runs = [(key, len(list(some))) for key, some in groupby(gathered, _connection_of)]
        compiled = self._compiled_answers.get() if group.is_compiled else None
        row = begin = 0
        if compiled is None:
            frames = self._python_answers(gathered, group.stored)
            for connection, count in runs:
                yield connection, frames[row : row + count]
                row += count
            return
        requests = [one.request for one in gathered]
        joined, ends = compiled.encode_for(
            self._shared.header,
            self._context.store_host,
            group.stored,
            [request.opaque for request in requests],
            [request.header_type for request in requests],
        )
        for connection, count in runs:
            row += count
            yield connection, [bytes(joined[begin : ends[row - 1]])]
            begin = ends[row - 1]

    def _process(self, gathered: GatheredSend) -> None:
        """Leave a send to its processor after all."""
        process_alone(gathered.connection, gathered.request)

    def _python_answers(
        self, gathered: Sequence[GatheredSend], stored_at: Iterable[StoredAt]
    ) -> list[bytes]:
        host = self._context.store_host
        return [
            self._shared.answer_to(one.request, one.target.queue_id, stored, host)
            for one, stored in zip(gathered, stored_at, strict=True)
        ]
