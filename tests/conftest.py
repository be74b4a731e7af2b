"""Tests that are coroutines run here, each in an event loop of its own and with a deadline."""

import asyncio
import inspect
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from tests.kits.leftovers import LEAVES_NOTHING, no_task_left

DEADLINE_S: Final = 60
"""How long a coroutine may take; ``pytest.mark.deadline(seconds)`` gives a test another time."""

# A loaded machine may take any time for an example; what is proven does not depend on it.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function; leave all others to pytest."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    mark = pyfuncitem.get_closest_marker("deadline")
    deadline_s = DEADLINE_S if mark is None else mark.args[0]

    async def limited() -> None:
        async with asyncio.timeout(deadline_s):
            await pyfuncitem.obj(**arguments)
        if LEAVES_NOTHING in pyfuncitem.fixturenames:
            await no_task_left()

    asyncio.run(limited())
    return True
