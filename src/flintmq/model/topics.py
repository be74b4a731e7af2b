"""Topics and topic prefixes with a meaning of their own."""

from typing import Final

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
"""Holds delayed messages until they are due; queue id = delay level - 1."""

WAITING_TOPIC: Final = "rmq_sys_FLINT_WAITING"
"""Holds messages that name a time of delivery until then; queue id = how long they wait."""

DUE_TIME_TOPICS: Final = frozenset({SCHEDULE_TOPIC, WAITING_TOPIC})
"""Topics whose units say when a message is due, where those of others have the hash of a tag."""

TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
"""Holds messages of undecided transactions."""

TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""Says which half messages are decided."""

LMQ_PREFIX: Final = "%LMQ%"
"""Starts the name of a light queue, which has the queue id 0 only."""

RETRY_PREFIX: Final = "%RETRY%"
"""Starts the topic in which a consumer group gets failed messages again."""

DLQ_PREFIX: Final = "%DLQ%"
"""Starts the topic of messages a consumer group has given up."""

AUTO_CREATE_TOPIC: Final = "TBW102"
"""The model of topics that are made when a message is sent to them."""

SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC: Final = "BenchmarkTest"

OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
"""Tells of pulls whose offset was outside of its queue."""

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
"""Where clients send what they did."""

TRANS_CHECK_MAX_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Holds half messages that were asked about too often."""

NO_SEND_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        WAITING_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)
"""Topics that only brokers write to."""

SYSTEM_TOPICS: Final = (NO_SEND_TOPICS - {WAITING_TOPIC}) | {
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    TRACE_TOPIC,
}
"""Topics that belong to the system, under the same name in every cluster of RocketMQ."""

SYSTEM_PREFIX: Final = "rmq_sys_"
"""Starts the names of further system topics."""

SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
"""Starts the names of groups that are always made when needed."""
