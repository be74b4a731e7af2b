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
