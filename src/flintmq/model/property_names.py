"""Names of the message properties that the store itself reads or writes."""

from typing import Final

KEYS: Final = "KEYS"
"""Keys to find the message by, split at single spaces."""

UNIQ_KEY: Final = "UNIQ_KEY"
"""The unique id the producer gave; indexed like a key."""

TAGS: Final = "TAGS"
"""The tag text whose hash stands in the consume queue."""

WAIT: Final = "WAIT"
"""Whether the producer waits until the message is flushed and replicated."""

DELAY: Final = "DELAY"
"""The delay level of a message to be delivered later."""

REAL_TOPIC: Final = "REAL_TOPIC"
"""Where a delayed or half message belongs."""

REAL_QID: Final = "REAL_QID"
"""The queue of REAL_TOPIC."""

INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
"""Further queues that are to lead to the message, split at commas."""

INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
"""The queue offsets in those, in the same order."""

CLUSTER: Final = "CLUSTER"
"""The cluster of the broker; request-reply finds its way back by it."""

TRAN_MSG: Final = "TRAN_MSG"
"""Whether a message belongs to a transaction."""

DELIVER_AT: Final = "FLINT_DELIVER_AT"
"""When a message is to be delivered, in milliseconds since the Unix epoch."""

TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
"""The same by RocketMQ 5's name."""

TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
"""How long after it was stored a message is to be delivered, in seconds and in milliseconds."""

DELIVERY_TIMES: Final = (DELIVER_AT, TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
"""The properties that name a time of delivery; of several the first one counts."""

TIMER_OUT_MS: Final = "TIMER_OUT_MS"
"""Until when a waiting message waits; the broker writes it."""

TIMER_CANCELLED_ID: Final = "TIMER_DEL_UNIQKEY"
"""The unique id of a waiting message that is not to be delivered."""

STEERING: Final = (DELAY, TRAN_MSG, INNER_MULTI_DISPATCH, CLUSTER, *DELIVERY_TIMES)
"""The properties that steer what a broker does with a message besides storing it.

A message is *plain* if it has none of them: it is stored, queued and indexed, and that is all.
This is the one list by which that is decided, in Python and in machine code: a property that
shall have such an effect has to stand here, or the fast path of sends overlooks it.
"""

PRODUCER_GROUP: Final = "PGROUP"
"""The producer group of a message in a transaction."""

CHECK_IMMUNITY_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
"""How long nobody is to ask how a transaction ended."""

TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
"""How often it was asked."""

PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
"""Where a half message stood before it was put again."""

RETRY_TOPIC: Final = "RETRY_TOPIC"
"""Where a message that is delivered again came from."""

ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
"""The id it had there."""

MSG_TYPE: Final = "MSG_TYPE"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"

MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
"""Where the queue of a message began and ended when it was pulled."""

RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
"""How often a message was given back, and how often it may be; a client moves both into its
request."""

INSTANCE_ID: Final = "INSTANCE_ID"
"""The namespace of the producer."""

TTL: Final = "TTL"
"""How long the sender of a request message waits for the reply, in milliseconds."""

CONSUME_START_TIME: Final = "CONSUME_START_TIME"
"""When a consumer began with a message."""
