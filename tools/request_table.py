"""The table of all requests, made from the code: ``python -m tools.request_table``.

Who answers a request is asked of the tables of a broker, a name server and a client; what it needs
of an account, of the classes of access control.  `tests/unit/broker/test_request_table.py` fails
when the document is not the table.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from flintmq import ClientInstance, ClientOptions
from flintmq.access.request_classes import REQUEST_CLASSES
from flintmq.broker import read_settings, run_broker
from flintmq.format.wire.codes import RequestCode
from flintmq.namesrv import NamesrvConfig, run_namesrv

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "operating" / "requests.md"
BEGIN, END = "<!-- generated: requests -->", "<!-- end -->"
SMALL: Final = {
    "listenPort": "0",
    "mappedFileSizeCommitLog": str(1 << 20),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "machineCode": "false",
}


class Served(NamedTuple):
    """The codes that each kind of peer answers."""

    broker: frozenset[int]
    namesrv: frozenset[int]
    client: frozenset[int]


async def served() -> Served:
    """Start one of each, and ask their tables."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        names = NamesrvConfig(
            listen_port=0, kv_config_path=root / "kv.json", config_store_path=root / "changes"
        )
        settings = read_settings(SMALL | {"storePathRootDir": str(root / "store")})
        async with run_namesrv(names) as namesrv, run_broker(*settings) as broker:
            client = ClientInstance(ClientOptions(namesrv=namesrv.address))
            found = Served(
                frozenset(broker.server.requests),
                frozenset(namesrv.server.requests),
                frozenset(client.remoting.requests),
            )
            await client.remoting.close()
            return found


def lines(by: Served) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| Code | Request | Answered by | Needs, with access control |"
    yield "| --- | --- | --- | --- |"
    for code in sorted(RequestCode):
        peers = [name for name, codes in zip(by._fields, by, strict=True) if code in codes]
        answered = ", ".join("name server" if one == "namesrv" else one for one in peers)
        needs = REQUEST_CLASSES[code].access.value if peers and peers != ["client"] else ""
        yield f"| {int(code)} | `{code.name}` | {answered or 'nobody: code 3'} | {needs} |"


def written(page: str, by: Served) -> str:
    """Return a page with the table in its place."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    table = "\n".join(lines(by))
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(), asyncio.run(served())))
