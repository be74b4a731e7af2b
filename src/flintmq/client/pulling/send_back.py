"""Giving messages back that could not be handled."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from flintmq.client.deadline import Deadline
from flintmq.client.errors import ClientError
from flintmq.client.instance import INNER_PRODUCER
from flintmq.client.messaging.envelope import Envelope
from flintmq.client.wall_clock import wall_ms
from flintmq.format.properties import encode_properties
from flintmq.format.sys_flag import COMPRESSED, COMPRESSION_MASK
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.send_back import SendBackRequest
from flintmq.model import property_names as names
from flintmq.model.message_queue import MessageQueue
from flintmq.model.topics import RETRY_PREFIX
from flintmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flintmq.client.instance import ClientInstance
    from flintmq.client.messaging.messages import ReceivedMessage
    from flintmq.errors import FlintError

logger = logging.getLogger(__name__)

TIMEOUT_MS: Final = 5000
FIRST_LEVEL: Final = 3
DEFAULT_TIMES_MAX: Final = 16


class SendBack:
    """Gives messages of one group back to the broker, for a later time or the dead letters."""

    def __init__(self, client: ClientInstance, group: str, *, times_max: int | None) -> None:
        self._client = client
        self._group = group
        self._times_max = DEFAULT_TIMES_MAX if times_max is None else times_max

    async def give(self, message: ReceivedMessage, *, delay_level: int = 0) -> bool:
        """Give a message back; return whether a broker has taken it.

        Without a level the broker chooses one, and a negative one makes it a dead letter.
        """
        try:
            await self._give(message, delay_level)
        except (ClientError, RemotingError) as error:
            logger.warning("message not given back: id=%s reason=%s", message.message_id, error)
        else:
            return True
        if delay_level < 0:
            return await self.send_dead_letter(message)
        try:
            properties = self._properties(message, times=message.reconsume_times + 1)
            properties[names.DELAY] = str(delay_level or FIRST_LEVEL + message.reconsume_times)
            await self._send_again(message, properties)
        except (ClientError, RemotingError) as error:
            logger.warning("message not sent again: id=%s reason=%s", message.message_id, error)
            return False
        return True

    async def _give(self, message: ReceivedMessage, delay_level: int) -> None:
        queue = message.queue
        address = self._client.routes.master(queue.broker_name) or message.store_host
        header = SendBackRequest(
            offset=message.physical_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.message_id,
            origin_topic=queue.topic,
            max_reconsume_times=self._times_max,
            broker_name=queue.broker_name,
        )
        await self._client.call(
            address, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout_ms=TIMEOUT_MS
        )

    async def _send_again(self, message: ReceivedMessage, properties: Mapping[str, str]) -> None:
        """Send a message to the retry topic from here, to the first broker that takes it."""
        topic = RETRY_PREFIX + self._group
        queues = await self._client.routes.publish_queues(topic)
        by_broker = {queue.broker_name: queue for queue in reversed(queues)}
        if not by_broker:
            by_broker[message.queue.broker_name] = MessageQueue(topic, message.queue.broker_name, 0)
        envelope = Envelope(
            topic=topic,
            code=RequestCode.SEND_MESSAGE_V2,
            body=message.stored_body,
            properties=encode_properties(properties).decode(),
            sys_flag=message.sys_flag & (COMPRESSED | COMPRESSION_MASK),
            flag=message.flag,
            message_id=message.message_id,
            born_timestamp=wall_ms(),
            reconsume_times=int(properties[names.RECONSUME_TIME]),
            max_reconsume_times=self._times_max,
        )
        failure: FlintError = ClientError(f"no broker has {topic}")
        deadline = Deadline(TIMEOUT_MS)
        for queue in by_broker.values():
            address = self._client.routes.master(queue.broker_name)
            if address is None or deadline.left_ms <= 0:
                continue
            try:
                answer = await self._client.remoting.call(
                    address,
                    envelope.code,
                    envelope.header(INNER_PRODUCER, queue),
                    envelope.body,
                    timeout_ms=max(deadline.left_ms, 1),
                )
                envelope.result(answer, queue, address=address)
            except (ClientError, RemotingError) as error:
                failure = error
            else:
                return
        raise failure

    def _properties(self, message: ReceivedMessage, *, times: int) -> dict[str, str]:
        """Return the properties of a message that is sent again."""
        properties = dict(message.properties)
        properties.setdefault(names.RETRY_TOPIC, message.queue.topic)
        properties.setdefault(names.ORIGIN_MESSAGE_ID, message.message_id)
        properties[names.RECONSUME_TIME] = str(times)
        properties[names.MAX_RECONSUME_TIMES] = str(self._times_max)
        for name in (
            names.TRAN_MSG,
            names.DELAY,
            *names.DELIVERY_TIMES,
            names.MIN_OFFSET,
            names.MAX_OFFSET,
            names.CONSUME_START_TIME,
        ):
            properties.pop(name, None)
        return properties

    async def send_dead_letter(self, message: ReceivedMessage) -> bool:
        """Make a message that failed too often a dead letter; return whether a broker has it."""
        times = max(message.reconsume_times, self._times_max)
        try:
            # Without a delay: the broker sees by the number of tries that it is dead.
            await self._send_again(message, self._properties(message, times=times))
        except (ClientError, RemotingError) as error:
            logger.warning("dead letter not sent: id=%s reason=%s", message.message_id, error)
            return False
        return True
