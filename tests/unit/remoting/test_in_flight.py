import asyncio
import contextlib

import pytest

from flintmq.format.wire.command import Command
from flintmq.remoting.in_flight import InFlight


class Expired:
    """Notes the requests whose time was up, in order."""

    def __init__(self) -> None:
        self.codes: list[int] = []

    def __call__(self, future: asyncio.Future[Command], code: int, timeout_ms: int) -> None:
        assert timeout_ms == code
        self.codes.append(code)
        future.cancel()


class TurnedLoop(asyncio.SelectorEventLoop):
    """A loop whose time is what the test says; it rings timers when it is turned."""

    moment = 0.0

    def time(self) -> float:
        return self.moment

    def turn(self, moment: float) -> None:
        self.moment = moment
        self.call_soon(self.stop)
        self.run_forever()


def test_each_request_expires_when_its_own_time_is_up() -> None:
    expired = Expired()
    with contextlib.closing(TurnedLoop()) as loop:
        in_flight = InFlight(loop, expired)
        # A later request with less time must not wait for the timer of an earlier one.
        for opaque, timeout_ms in enumerate((60, 20, 40, 1, 30)):
            in_flight.open(opaque)
            in_flight.limit(opaque, timeout_ms, timeout_ms)
        for moment_ms, codes in ((1, [1]), (19, []), (25, [20]), (45, [30, 40]), (60, [60])):
            expired.codes.clear()
            loop.turn(moment_ms / 1000)
            assert sorted(expired.codes) == codes


async def test_what_was_answered_or_given_up_does_not_expire() -> None:
    expired = Expired()
    in_flight = InFlight(asyncio.get_running_loop(), expired)
    answered, given_up, late = (in_flight.open(opaque) for opaque in range(3))
    for opaque in range(3):
        in_flight.limit(opaque, opaque + 1, opaque + 1)
    # Nobody has taken the answer yet when the timer rings.
    assert in_flight.answered(Command(code=0, opaque=0))
    in_flight.close(1)
    await asyncio.wait([late])
    assert expired.codes == [3]
    assert answered.done()
    assert not given_up.done()


async def test_a_lost_connection_leaves_no_timer() -> None:
    expired = Expired()
    in_flight = InFlight(asyncio.get_running_loop(), expired)
    future = in_flight.open(0)
    in_flight.limit(0, 1, 1)
    in_flight.fail(ConnectionError())
    with pytest.raises(ConnectionError):
        await future
    other = in_flight.open(1)
    in_flight.limit(1, 2, 2)
    await asyncio.wait([other])
    assert expired.codes == [2]
