"""A broker that comes back without the last messages of a queue."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.kits.client.consumer_kit import Site, site

KEPT: Final = 23
LOST: Final = 7


@asynccontextmanager
async def site_with_a_copy(root: Path) -> AsyncIterator[Site]:
    """A broker with messages, of whose store there is a copy without the last ones."""
    async with site(root) as here:
        await here.send(KEPT, queue_count=1)
        await here.stop_broker()
        shutil.copytree(root / "store", root / "copy")
        await here.start_broker()
        await here.send(LOST, start=KEPT, queue_count=1)
        yield here


async def lose_the_end(here: Site, root: Path) -> None:
    """Start the broker again from the copy: it has lost what came last."""
    await here.stop_broker()
    shutil.rmtree(root / "store")
    shutil.copytree(root / "copy", root / "store")
    await here.start_broker()
