"""Members of groups are killed, stand still and lose their connections, at random.

``FLINTMQ_CHURN_S`` says for how long, ``FLINTMQ_CHURN_SEED`` which walk.
"""

import itertools
import os
import random
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import pytest

from flintmq import Message, Producer, SendFailedError
from flintmq.broker.tables.queue_lock_table import EXPIRY_MS
from flintmq.client.assigning.process_queue import LOCK_VALID_MS
from flintmq.testing import EmbeddedCluster
from tests.kits.leftovers import LEAVES_NOTHING
from tests.kits.processes.java_clients import HEAP_FLAGS, HURRY_FLAGS, find_clients
from tests.kits.processes.line_process import Line, LineProcess

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures(LEAVES_NOTHING)]

CONSUMER: Final = Path(__file__).parents[1] / "kits" / "processes" / "our_consumer.py"
TOPIC: Final = "churned"
MEMBER_COUNT: Final = 3
STANDSTILL_S: Final = LOCK_VALID_MS / 1000 + 3
CHURN_S: Final = float(os.environ.get("FLINTMQ_CHURN_S", "20"))
SEED: Final = int(os.environ.get("FLINTMQ_CHURN_SEED", "1"))


class Churn:
    """A cluster, a producer that goes on and on, and members that come and go.

    Either all members are ours and consume in order, or each second one is a Java client.
    """

    def __init__(
        self, mq: EmbeddedCluster, home: Path, stack: ExitStack, *, is_mixed: bool = False
    ) -> None:
        self._mq = mq
        self._home = home
        home.mkdir()
        self._java = find_clients("4.9.8") if is_mixed else None
        self._stack = stack
        self._random = random.Random(SEED)
        self.faults: Counter[str] = Counter()
        self.got: list[Line] = []
        self.acknowledged: set[str] = set()
        self._is_over = threading.Event()
        self._joined = itertools.count()
        self.members = [self._join() for _ in range(MEMBER_COUNT)]
        self._stopped: tuple[LineProcess, float] | None = None

    def _join(self) -> LineProcess:
        arguments = (self._mq.namesrv, "churn-group", TOPIC)
        if self._java is None:
            command = [sys.executable, str(CONSUMER), *arguments, "--orderly"]
        elif next(self._joined) % 2:
            command = [sys.executable, str(CONSUMER), *arguments]
        else:
            flags = (f"-Duser.home={self._home}", *HEAP_FLAGS, *HURRY_FLAGS)
            command = self._java.command("Member", *arguments, flags=flags)
        member = LineProcess(command, home=self._home, sink=self.got)
        return self._stack.enter_context(member)

    def send(self) -> None:
        """Send until the end; only what is acknowledged counts."""
        with Producer(namesrv=self._mq.namesrv) as producer:
            for number in itertools.count():
                if self._is_over.wait(0.002):
                    return
                with suppress(SendFailedError):
                    producer.send(Message(topic=TOPIC, body=b"%d" % number))
                    self.acknowledged.add(str(number))

    def run(self) -> None:
        sender = threading.Thread(target=self.send)
        sender.start()
        try:
            end = time.monotonic() + CHURN_S
            while time.monotonic() < end:
                self._step()
                time.sleep(self._random.uniform(0.5, 3))
            self._go_on()
        finally:
            self._is_over.set()
            sender.join()

    def _step(self) -> None:
        if self._stopped is not None and time.monotonic() > self._stopped[1]:
            self._go_on()
        kind = self._random.choice(["kill", "stand still", "drop connections", "forget"])
        free = [one for one in self.members if self._stopped is None or one is not self._stopped[0]]
        member = self._random.choice(free)
        if kind == "kill":
            member.kill()
            self.members[self.members.index(member)] = self._join()
        elif kind == "stand still" and self._stopped is None:
            member.signal(signal.SIGSTOP)
            self._stopped = member, time.monotonic() + STANDSTILL_S
        elif kind == "drop connections":
            self._mq.drop_connections()
        elif kind == "forget":
            self._mq.proxy.forget_connections()
        else:
            return
        self.faults[kind] += 1
        # Locks of those that are gone or stand still expire at the broker.
        self._mq.advance(EXPIRY_MS // 2)

    def _go_on(self) -> None:
        if self._stopped is not None:
            self._stopped[0].signal(signal.SIGCONT)
            self._stopped = None


def churned(home: Path, *, is_mixed: bool = False) -> list[Line]:
    """Return what members got, once nothing is missing."""
    with EmbeddedCluster(manual_clock=True, proxied=True) as mq, ExitStack() as stack:
        churn = Churn(mq, home, stack, is_mixed=is_mixed)
        churn.run()
        deadline = time.monotonic() + 180
        while missing := churn.acknowledged - {line.get("body") for line in churn.got}:
            assert time.monotonic() < deadline, f"{len(missing)} messages are missing"
            mq.advance(EXPIRY_MS // 10)
            time.sleep(0.5)
        got = [line for line in churn.got if line["kind"] == "got"]
    again = len(got) - len({line["body"] for line in got})
    sys.stderr.write(
        f"churn: seed={SEED} seconds={CHURN_S:.0f} mixed={is_mixed} faults={dict(churn.faults)} "
        f"acknowledged={len(churn.acknowledged)} handled again={again}\n"
    )
    return got


@pytest.mark.slow
@pytest.mark.timeout(CHURN_S + 300)
def test_nothing_is_missed_and_order_is_kept_whatever_happens_to_members(tmp_path: Path) -> None:
    got = churned(tmp_path / "home")
    first_times: dict[int, dict[int, None]] = defaultdict(dict)
    for line in got:
        first_times[line["queueId"]].setdefault(line["queueOffset"])
    for offsets in first_times.values():
        assert all(before < after for before, after in itertools.pairwise(offsets))


@pytest.mark.slow
@pytest.mark.timeout(CHURN_S + 300)
def test_nothing_is_missed_in_a_group_of_ours_and_java_members(tmp_path: Path) -> None:
    churned(tmp_path / "home", is_mixed=True)
