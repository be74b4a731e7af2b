"""Hostile and odd frames for the machine code of sends; as a program it tells what came of them.

The same frames go through compiled kernels and, with ``NUMBA_DISABLE_JIT=1``, through the same
functions in plain Python, which look at bounds.
"""

import hashlib
import random
import sys
from typing import Final

import numpy as np

from flintmq.broker.sending.compiled_sends import CompiledSends
from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.wire.command import Command, encode_command
from flintmq.format.wire.frame import FrameDecoder, HeaderType
from flintmq.format.wire.headers.send import SendAnswer
from flintmq.store.append_group.sends import AppendPosition, NotPlainError, SendTarget

HOSTS: Final = (bytes(range(8)), bytes(range(20)))
SHARED: Final = SendAnswer(region="r", trace_on=True)
TEXTS: Final = (
    "",
    "KEYS\x01k1 k2\x02TAGS\x01TagA\x02WAIT\x01true\x02UNIQ_KEY\x017F00\x02",
    "WAIT\x01true",
    'a\x01"\\/\x02',
    "KEYS\x01\u20ac\x02",
    "DELAY\x013\x02",
    "nothing",
)


def frames(dice: random.Random, header_type: HeaderType) -> list[bytes]:
    """Return some sends, of which most are plain."""
    made = []
    for opaque in range(dice.randint(1, 5)):
        is_batch = dice.random() < 0.2
        fields = {name: "0" for name in "fhj"} | {"a": "g", "b": "T", "c": "TBW102", "d": "4"}
        fields |= {"e": str(dice.choice((0, 1, 63, 64))), "g": str(dice.randrange(1 << 40))}
        fields |= {"i": "" if is_batch else dice.choice(TEXTS), "k": "false"}
        fields["m"] = "true" if is_batch else "false"
        items = [BatchItem(0, b"x" * dice.randint(0, 9), b"KEYS\x01k\x02")] * dice.randint(1, 3)
        body = encode_batch(items) if is_batch else bytes(dice.randint(0, 40))
        command = Command(code=310, opaque=opaque, ext_fields=fields, body=body)
        command.serialize_type = header_type
        made.append(encode_command(command))
    return made


def learn(sends: CompiledSends, wire: bytes) -> None:
    """Have the headers of some sends known, each with three queues."""
    for frame in FrameDecoder().frames(wire):
        is_batch = b"x" in frame.body
        for queue_id in (0, 1, 63):
            target = SendTarget("T", queue_id, is_batch=is_batch)
            # Which queue a header names makes no difference to what is learned of it.
            sends.learn(frame.header_type, frame.header, target, b"CLUSTER\x01c")


def mutated(dice: random.Random, wire: bytes) -> bytes:
    """Return bytes with some of them changed, left out or put in."""
    data = bytearray(wire)
    for _ in range(dice.choice((0, 0, 1, 1, 3))):
        at = dice.randrange(len(data))
        kind = dice.randrange(4)
        if kind == 0:
            data[at] = dice.randrange(256)
        elif kind == 1:
            del data[at : at + dice.randint(1, 9)]
        elif kind == 2:
            data[at:at] = dice.randbytes(dice.randint(1, 5))
        else:
            data[at] ^= 1 << dice.randrange(8)
        if not data:
            break
    return bytes(data[: dice.randint(0, len(data))] if dice.random() < 0.3 else data)


def outcome(seed: int, rounds: int) -> str:
    """Return a digest of all that the kernels make of many reads."""
    dice = random.Random(seed)
    sends = CompiledSends()
    digest, walked_count = hashlib.sha256(), 0
    for _ in range(rounds):
        reads = []
        for _ in HOSTS:
            wire = frames(dice, dice.choice([*HeaderType]))
            learn(sends, b"".join(wire))
            reads.append(mutated(dice, b"".join(wire)))
        walked = sends.walk(reads, waits=dice.random() < 0.5)
        digest.update(repr((walked.send_count, walked.handled, walked.send_ends)).encode())
        if not walked.send_count:
            continue
        walked_count += walked.send_count
        position = AppendPosition(9, {}, 7, HOSTS[dice.randrange(2)], 2000, 1000)
        try:
            group = sends.encode(walked, position, HOSTS)
        except NotPlainError:
            digest.update(b"not plain")
            continue
        joined, ends = sends.answers(group, SHARED, position.store_host)
        digest.update(bytes(group.records) + bytes(joined) + repr(ends).encode())
    return f"{walked_count} {digest.hexdigest()}"


def main() -> None:
    """Print what came of the frames of a seed."""
    np.seterr(all="ignore")
    sys.stdout.write(outcome(int(sys.argv[1]), int(sys.argv[2])))


if __name__ == "__main__":
    main()
