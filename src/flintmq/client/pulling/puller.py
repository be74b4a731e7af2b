"""One pull: the request, and what its answer means."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.client.errors import NoRouteError, ResponseError
from flintmq.client.messaging.message_decoding import pulled_messages
from flintmq.client.request_forms import RequestForm, remember
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.pull import PullMessageRequest, PullMessageResponse

if TYPE_CHECKING:
    from flintmq.client.instance import ClientInstance
    from flintmq.client.messaging.messages import ReceivedMessage
    from flintmq.model.message_queue import MessageQueue
    from flintmq.model.subscription import Subscription

COMMIT_OFFSET: Final = 1
SUSPEND: Final = 2
SUBSCRIPTION: Final = 4
LITE: Final = 16

SUSPEND_TIMEOUT_MS: Final = 15_000
PULL_TIMEOUT_MS: Final = 30_000
PULL_COUNT: Final = 32
_OFFSET_MAX: Final = (1 << 63) - 1


class PullStatus(Enum):
    """How a pull ended."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW_MESSAGE = ResponseCode.PULL_NOT_FOUND
    NO_MATCH = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED


_STATUSES: Final = {int(one.value): one for one in PullStatus}


class PullAnswer(NamedTuple):
    """The answer to a pull from ``offset`` on; ``body`` holds records as they stand in a log.

    ``next_offset`` is where the next pull starts.
    """

    status: PullStatus
    offset: int
    body: bytes
    next_offset: int
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PullResult:
    """What a pull has brought."""

    status: PullStatus
    messages: list[ReceivedMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    elapsed_ms: int = 0
    """How long the pull took, the broker's waiting included."""


class _PullKind(NamedTuple):
    """What repeats from one pull of a queue to the next."""

    queue: MessageQueue
    count_max: int
    sys_flag: int
    suspend_ms: int
    expression: str | None
    version: int
    expression_type: str

    def header(self, group: str, *, offset: int, commit_offset: int) -> PullMessageRequest:
        """Return the header of a pull from an offset on."""
        return PullMessageRequest(
            consumer_group=group,
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            queue_offset=offset,
            max_msg_nums=self.count_max,
            sys_flag=self.sys_flag,
            commit_offset=commit_offset,
            suspend_timeout_millis=self.suspend_ms,
            subscription=self.expression,
            sub_version=self.version,
            expression_type=self.expression_type,
            broker_name=self.queue.broker_name,
        )


_VARYING: Final = tuple(map(PullMessageRequest.wire_name, ("queue_offset", "commit_offset")))
"""The fields of a pull that no kind has, in their order."""


def _are_offsets(*values: int) -> bool:
    """Return whether values need no further check to be sent as offsets."""
    return all(value.__class__ is int and 0 <= value <= _OFFSET_MAX for value in values)


class Puller:
    """Pulls for one group, and remembers which broker to ask for each queue."""

    def __init__(self, client: ClientInstance, group: str) -> None:
        self._client = client
        self._group = group
        self._suggested: dict[MessageQueue, int] = {}
        self._forms: dict[_PullKind, RequestForm] = {}
        """What repeats in the requests of one kind, checked and encoded once."""

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        subscription: Subscription,
        *,
        count_max: int = PULL_COUNT,
        commit_offset: int | None = None,
        suspend_ms: int = SUSPEND_TIMEOUT_MS,
        with_subscription: bool = False,
        is_lite: bool = False,
        timeout_ms: int | None = None,
    ) -> PullResult:
        """Ask for messages from an offset on; the broker may wait up to ``suspend_ms``.

        Without ``timeout_ms`` its answer has as much time as Java's consumers give it.

        Raises:
            ResponseError: the broker refused.
            RemotingError: it could not be asked.
        """
        began = time.monotonic()
        answer = await self.ask(
            queue,
            offset,
            subscription,
            count_max=count_max,
            commit_offset=commit_offset,
            suspend_ms=suspend_ms,
            with_subscription=with_subscription,
            is_lite=is_lite,
            timeout_ms=timeout_ms or max(PULL_TIMEOUT_MS, suspend_ms + PULL_TIMEOUT_MS // 2),
        )
        messages = pulled_messages(
            answer.body,
            queue,
            subscription,
            group=self._group,
            namespace=self._client.options.namespace,
            bounds=(answer.min_offset, answer.max_offset),
        )
        return PullResult(
            status=answer.status,
            messages=messages,
            next_offset=answer.next_offset,
            min_offset=answer.min_offset,
            max_offset=answer.max_offset,
            elapsed_ms=round((time.monotonic() - began) * 1000),
        )

    async def ask(
        self,
        queue: MessageQueue,
        offset: int,
        subscription: Subscription,
        *,
        count_max: int,
        commit_offset: int | None = None,
        suspend_ms: int = 0,
        with_subscription: bool = False,
        is_lite: bool = False,
        timeout_ms: int,
    ) -> PullAnswer:
        """Pull as `pull` does, and return the records undecoded."""
        address, is_slave = await self._address(queue)
        flags = SUSPEND if suspend_ms else 0
        flags |= SUBSCRIPTION if with_subscription else 0
        flags |= LITE if is_lite else 0
        if commit_offset is not None and commit_offset > 0 and not is_slave:
            flags |= COMMIT_OFFSET
        kind = _PullKind(
            queue,
            count_max,
            flags,
            suspend_ms,
            subscription.expression if with_subscription else None,
            subscription.version,
            subscription.expression_type,
        )
        connection = None
        if self._client.has_repeating_headers and _are_offsets(offset, commit_offset or 0):
            connection = self._client.remoting.ready(address)
        if connection is not None:
            form = self._forms.get(kind) or self._form(kind)
            request = form.fill(connection.next_opaque(), offset, commit_offset or 0)
            answer = await connection.exchange(request, timeout_ms=timeout_ms)
        else:
            header = kind.header(self._group, offset=offset, commit_offset=commit_offset or 0)
            answer = await self._client.remoting.call(
                address, RequestCode.PULL_MESSAGE, header, timeout_ms=timeout_ms
            )
        status = _STATUSES.get(answer.code)
        if status is None:
            raise ResponseError.for_code(answer.code, answer.remark, address=address)
        told = PullMessageResponse.decode(answer.ext_fields)
        self._suggested[queue] = told.suggest_which_broker_id
        return PullAnswer(
            status,
            offset,
            answer.body,
            told.next_begin_offset,
            told.min_offset,
            told.max_offset,
        )

    def _form(self, kind: _PullKind) -> RequestForm:
        fields = kind.header(self._group, offset=0, commit_offset=0).encode()
        form = RequestForm.of(
            RequestCode.PULL_MESSAGE, fields, self._client.prepare, numbers=_VARYING
        )
        return remember(self._forms, kind, form)

    async def _address(self, queue: MessageQueue) -> tuple[str, bool]:
        routes = self._client.routes
        wanted = self._suggested.get(queue, 0)
        found = routes.reader(queue.broker_name, wanted)
        if found is None:
            await routes.fetch(queue.topic)
            found = routes.reader(queue.broker_name, wanted)
        if found is None:
            raise NoRouteError(
                queue.topic, f"broker {queue.broker_name} is not registered", "wait, or start it"
            )
        return found
