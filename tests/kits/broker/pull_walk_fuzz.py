"""Hostile and odd frames for the machine code of pulls; as a program it tells what came of them.

As with those for sends (`walk_fuzz`), kernels in plain Python, which look at bounds, get the same.
"""

import hashlib
import random
import sys
from typing import Final

import numpy as np

from flintmq.broker.pulling.compiled_pulls import CompiledPulls
from flintmq.broker.pulling.known_pull import KnownPull
from flintmq.broker.pulling.pull_admission import AdmittedPull
from flintmq.broker.statistics.broker_statistics import GotQueue
from flintmq.format.subscription import build_subscription
from flintmq.format.wire.command import Command, encode_command
from flintmq.format.wire.frame import FrameDecoder, HeaderType
from flintmq.model import GroupConfig
from flintmq.store.read_cursor import ReadCursor
from flintmq.store.results import CopiedMessages
from tests.kits.broker.walk_fuzz import mutated

OFFSETS: Final = ("0", "7", "007", "9" * 18, "9" * 19, "-1", "", "x", " 1")
QUEUES: Final = (0, 1, 63, 64)


def frames(dice: random.Random, header_type: HeaderType) -> list[bytes]:
    """Return some pulls, of which most are plain."""
    made = []
    for _ in range(dice.randint(1, 5)):
        fields = {"consumerGroup": dice.choice("gh"), "topic": "T", "maxMsgNums": "32"}
        fields |= {"queueId": str(dice.choice(QUEUES)), "sysFlag": "4", "subscription": "*"}
        fields |= {"queueOffset": str(dice.randrange(1 << 40)), "commitOffset": "0"}
        fields |= {"suspendTimeoutMillis": "0", "subVersion": "0"}
        if dice.random() < 0.2:
            fields[dice.choice(["queueOffset", "commitOffset", "queueId"])] = dice.choice(OFFSETS)
        command = Command(code=11, opaque=dice.randrange(-5, 1 << 31), ext_fields=fields)
        command.serialize_type = header_type
        made.append(encode_command(command))
    return made


def known_pull(queue_id: int) -> KnownPull:
    """Return what is known of pulls of a queue."""
    return KnownPull(
        kind=(),
        based_on=(),
        group="g",
        topic="T",
        queue_id=queue_id,
        count_max=32,
        admitted=AdmittedPull(GroupConfig(name="g"), build_subscription("T", "*"), None),
        commits=False,
        hold_ms=None,
        held_size=0,
        is_registered=False,
        got_queue=GotQueue("T", "g", queue_id),
        cursor=ReadCursor("T", queue_id),
        message_model=None,
    )


def outcome(seed: int, rounds: int) -> str:
    """Return a digest of all that the kernel makes of many reads."""
    dice = random.Random(seed)
    pulls, by_queue = CompiledPulls(), [known_pull(queue_id) for queue_id in QUEUES]
    digest, walked_count = hashlib.sha256(), 0
    for _ in range(rounds):
        wire = frames(dice, dice.choice([*HeaderType]))
        for frame in FrameDecoder().frames(b"".join(wire)):
            for known in by_queue:
                pulls.learn(frame.header_type, frame.header, known)
        walked, end = pulls.walk(mutated(dice, b"".join(wire)))
        walked_count += len(walked)
        for pull in walked:
            number, offset, _, commit_offset, opaque, notation = pull
            digest.update(repr((pulls.pulls[number].queue_id, pull, end)).encode())
            copied = CopiedMessages(1, len(wire), commit_offset, -offset, offset)
            digest.update(pulls.answers.frame_of(copied, opaque, number, is_binary=notation != 0))
        if not pulls.has_room:
            pulls.forget()
    return f"{walked_count} {digest.hexdigest()}"


def main() -> None:
    """Print what came of the frames of a seed."""
    np.seterr(all="ignore")
    sys.stdout.write(outcome(int(sys.argv[1]), int(sys.argv[2])))


if __name__ == "__main__":
    main()
