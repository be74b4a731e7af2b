"""What can happen to a master, its slave and the connection between them."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from flintmq.testing import TcpProxy
    from tests.kits.processes.broker_process import OurBroker


class Pair(NamedTuple):
    """A master and its slave as processes; the slave reads the log through a proxy."""

    master: OurBroker
    slave: OurBroker
    stream: TcpProxy

    def cause(self, fault: str, seconds: float) -> None:
        """Let a fault happen; what stands still does so for some seconds."""
        match fault:
            case "kill master":
                kill(self.master)
            case "kill slave":
                kill(self.slave)
            case "stop master":
                stop_for_a_while(self.master, seconds)
            case "stop slave":
                stop_for_a_while(self.slave, seconds)
            case "cut":
                self.stream.drop_connections()
            case "stall":
                with self.stream.stall():
                    time.sleep(seconds)
            case _:
                raise ValueError(fault)


def kill(broker: OurBroker) -> None:
    """Kill a process and start it again."""
    broker.kill()
    broker.start()


def stop_for_a_while(broker: OurBroker, seconds: float) -> None:
    """Let a process stand still."""
    os.kill(broker.pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(broker.pid, signal.SIGCONT)
