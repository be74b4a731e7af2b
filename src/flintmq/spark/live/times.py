"""From store times to offsets.

A broker can be asked for the offset of a time, but RocketMQ answers with the nearest message, be
it before or after, and with any of several that have the same time.  So the queue is searched
here: the first message that is not older counts, as far as times ascend within a queue.
"""

from flintmq.format.stored.record import decode_record
from flintmq.model.message_queue import MessageQueue
from flintmq.spark.live.errors import FalseAnswerError, queue_text
from flintmq.spark.live.fetch import RecordPuller


async def first_since(
    puller: RecordPuller, queue: MessageQueue, time_ms: int, *, least: int, end: int
) -> int:
    """Return the first offset of a queue whose store time is ``time_ms`` or later.

    It is ``end`` if there is none.  Each step halves the range, so there are 63 at most.
    """
    low, high = least, end
    while low < high:
        middle = (low + high) // 2
        answer = await puller.pull(queue, middle, 1, everything=True)
        if not answer.body:
            # Deleted meanwhile: what is there comes later.
            if answer.next_offset <= middle:
                raise FalseAnswerError(
                    queue_text(queue), f"no message at {middle}, although it ends at {end}"
                )
            low = min(answer.next_offset, high)
            continue
        if decode_record(answer.body).store_timestamp < time_ms:
            low = middle + 1
        else:
            high = middle
    return low
