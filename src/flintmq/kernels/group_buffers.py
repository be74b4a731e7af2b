"""The tables and buffers through which kernels encode an append group.

Tables are arrays of numbers; the constants are the numbers of their columns.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from flintmq.format.host import IPV6_HOST_SIZE
from flintmq.format.stored.consume_queue import UNIT_SIZE
from flintmq.format.sys_flag import with_hosts
from flintmq.kernels.compiled import Bytes, Ints, Longs, Target, as_bytes

Table = npt.NDArray[np.int64]

# The table of sends.
SEND_TARGET: Final = 0
"""The row of the target in its table."""
SEND_BORN: Final = 1
SEND_BODY_AT: Final = 2
SEND_BODY_SIZE: Final = 3
SEND_TEXT_AT: Final = 4
SEND_TEXT_SIZE: Final = 5
"""Where body and properties text stand in the data."""
SEND_HOST: Final = 6
"""The number of the born host among the hosts."""
SEND_GIVEN_COUNT: Final = 7
"""The columns up to here are given; kernels fill in the others."""
SEND_CUT_AT: Final = 7
SEND_CUT_END: Final = 8
"""The properties text is stored without what stands from one to the other."""
SEND_OPAQUE: Final = 9
SEND_IS_BINARY: Final = 10
"""The number of the request and the notation of its header, for those who answer."""
SEND_COLUMN_COUNT: Final = 11

# Where an append group begins, and its limits.
START_OFFSET: Final = 0
STORE_TIMESTAMP: Final = 1
RECORD_SIZE_MAX: Final = 2
BODY_SIZE_MAX: Final = 3
START_COLUMN_COUNT: Final = 4

# The table of targets: where the sends of each kind go to.
QUEUE: Final = 0
"""The row of the queue in its table."""
QUEUE_ID: Final = 1
SYS_FLAG: Final = 2
FLAG: Final = 3
RECONSUME_TIMES: Final = 4
KEY_PREFIX: Final = 5
"""The hash of what stands before each key."""
TOPIC_AT: Final = 6
TOPIC_SIZE: Final = 7
"""Where the topic stands among the shared bytes, and its size."""
TAIL_AT: Final = 8
TAIL_SIZE: Final = 9
"""The properties that each message gets behind its own, among the shared bytes."""
IS_BATCH: Final = 10
TARGET_COLUMN_COUNT: Final = 11

# The table of queues.
NEXT_OFFSET: Final = 0
"""The next queue offset; kernels count on."""
UNIT_END: Final = 1
"""The number behind the last unit of the queue; kernels fill it in."""
LOG_SIZE: Final = 2
"""Bytes of the log that the messages take; kernels add them up."""
QUEUE_COLUMN_COUNT: Final = 3

# The table of messages: those of a batch are a row each.
TARGET: Final = 0
MESSAGE_FLAG: Final = 1
BORN_TIMESTAMP: Final = 2
BODY_AT: Final = 3
BODY_SIZE: Final = 4
TEXT_AT: Final = 5
TEXT_END: Final = 6
"""Where the properties text stands in the data."""
CUT_AT: Final = 7
CUT_END: Final = 8
"""The properties text is stored without what stands from one to the other."""
LACKS_END: Final = 9
"""Whether the properties text gets a separator behind its last pair."""
STORED_TEXT_SIZE: Final = 10
RECORD_SIZE: Final = 11
PHYSICAL_OFFSET: Final = 12
QUEUE_OFFSET: Final = 13
UNIT: Final = 14
"""The number of the consume-queue unit; those of one queue stand side by side."""
HOST: Final = 15
"""The number of the born host among the hosts."""
MESSAGE_COLUMN_COUNT: Final = 16

HOST_STRIDE: Final = IPV6_HOST_SIZE
"""Bytes from one host to the next: there is room for the longest."""


class GroupHosts(NamedTuple):
    """The hosts of an append group, as kernels have them."""

    packed: Bytes
    """The store host and behind it all born hosts, HOST_STRIDE bytes each."""
    flags: Longs
    """What each born host adds to the sys flag of its messages, the store host included."""

    @classmethod
    def of(cls, store_host: bytes, born_hosts: "Iterable[bytes]") -> "GroupHosts":
        """Return these hosts; the numbers of born hosts are those of their order."""
        born_hosts = list(born_hosts)
        packed = b"".join([host.ljust(HOST_STRIDE, b"\0") for host in (store_host, *born_hosts)])
        flags = [with_hosts(0, born_host=host, store_host=store_host) for host in born_hosts]
        return cls(as_bytes(packed), np.array(flags, np.int64))


class GroupBuffers(NamedTuple):
    """Where kernels write an append group to."""

    messages: Table
    first_messages: Longs
    """The row of the first message of each send, and at the end how many messages there are."""
    records: Target
    units: Target
    """Units of consume queues, those of one queue side by side."""
    hashes: Ints
    """The index hash of each key."""
    key_offsets: Longs
    """The physical offset of the message of each key."""

    @classmethod
    def of(cls, *, record_bytes: int, messages: int, keys: int) -> "GroupBuffers":
        """Return buffers of these sizes; memory that is never written to is never taken."""
        return cls(
            np.empty((messages, MESSAGE_COLUMN_COUNT), np.int64),
            np.empty(messages + 1, np.int64),
            np.empty(record_bytes, np.uint8),
            np.empty(messages * UNIT_SIZE, np.uint8),
            np.empty(keys, np.int32),
            np.empty(keys, np.int64),
        )

    def units_of(self, first: int, end: int) -> bytes:
        """Return units by their numbers."""
        return self.units[first * UNIT_SIZE : end * UNIT_SIZE].tobytes()
