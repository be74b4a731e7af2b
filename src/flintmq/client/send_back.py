"""Giving messages back that could not be handled."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from flintmq.client.errors import ClientError
from flintmq.client.instance import INNER_PRODUCER
from flintmq.client.sending import Envelope
from flintmq.format.codes import RequestCode
from flintmq.format.headers.send_back import SendBackRequest
from flintmq.format.properties import encode_properties
from flintmq.model import property_names as names
from flintmq.model.message_queue import MessageQueue
from flintmq.model.topics import RETRY_PREFIX
from flintmq.remoting import RemotingError

if TYPE_CHECKING:
    from flintmq.client.instance import ClientInstance
    from flintmq.client.messages import ReceivedMessage

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
        """Return whether the broker has the message now."""
        try:
            await self._give(message, delay_level)
        except (ClientError, RemotingError) as error:
            logger.warning("message not given back: id=%s reason=%s", message.message_id, error)
        else:
            return True
        try:
            await self._send_again(message)
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

    async def _send_again(self, message: ReceivedMessage, *, times: int | None = None) -> None:
        """Send the message to the retry topic ourselves, where the broker would not take it."""
        topic = RETRY_PREFIX + self._group
        queues = await self._client.routes.publish_queues(topic)
        queue = queues[0] if queues else MessageQueue(topic, message.queue.broker_name, 0)
        address = self._client.routes.master(queue.broker_name)
        if address is None:
            raise ClientError(f"no master of {queue.broker_name} is known")
        properties = dict(message.properties)
        properties.setdefault(names.RETRY_TOPIC, message.topic)
        properties.setdefault(names.ORIGIN_MESSAGE_ID, message.message_id)
        properties.pop(names.TRAN_MSG, None)
        for name in (names.MIN_OFFSET, names.MAX_OFFSET, names.CONSUME_START_TIME):
            properties.pop(name, None)
        properties[names.DELAY] = str(FIRST_LEVEL + message.reconsume_times)
        envelope = Envelope(
            topic=topic,
            code=RequestCode.SEND_MESSAGE_V2,
            body=message.body,
            properties=encode_properties(properties).decode(),
            sys_flag=0,
            flag=message.flag,
            message_id=message.message_id,
            born_timestamp=time.time_ns() // 1_000_000,
            reconsume_times=message.reconsume_times + 1 if times is None else times,
            max_reconsume_times=self._times_max,
        )
        answer = await self._client.remoting.call(
            address,
            envelope.code,
            envelope.header(INNER_PRODUCER, queue),
            envelope.body,
            timeout_ms=TIMEOUT_MS,
        )
        envelope.result(answer, queue, address=address)

    async def bury(self, message: ReceivedMessage) -> bool:
        """Send a message that failed too often in order to the dead letters."""
        try:
            await self._send_again(message, times=max(message.reconsume_times, self._times_max))
        except (ClientError, RemotingError) as error:
            logger.warning("message not buried: id=%s reason=%s", message.message_id, error)
            return False
        return True
