"""Topics and topic prefixes with a meaning of their own."""

from typing import Final

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
"""Holds delayed messages until they are due; queue id = delay level - 1."""

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
