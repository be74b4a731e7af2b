"""The official Java clients, run through scenarios of our own (``java/clients``)."""

import json
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.kits.processes.java_process import JavaProcessError
from tests.kits.processes.java_toolchain import SOURCES, JavaToolchain

CLIENTS: Final = SOURCES / "clients"
SCENARIOS_TIMEOUT_S: Final = 240
HEAP_FLAGS: Final = ("-Xms64m", "-Xmx384m", "-XX:MaxDirectMemorySize=256m")
# Queues are shared out every 20 s otherwise; a queue that is found late would take as long.
HURRY_FLAGS: Final = ("-Drocketmq.client.rebalance.waitInterval=1000",)

Line = dict[str, Any]


@dataclass(slots=True)
class Told:
    """What one scenario said, in order."""

    name: str
    lines: list[Line] = field(default_factory=list)

    def all(self, kind: str, **wanted: object) -> list[Line]:
        """Return the lines of a kind that say what is wanted."""
        return [
            line
            for line in self.lines
            if line["kind"] == kind and all(line.get(key) == it for key, it in wanted.items())
        ]

    def one(self, kind: str, **wanted: object) -> Line:
        """Return the only such line."""
        found = self.all(kind, **wanted)
        assert len(found) == 1, (self.name, kind, wanted, found)
        return found[0]

    def bodies(self, by: str) -> list[str]:
        """Return the bodies that one receiver got, in order."""
        return [line["body"] for line in self.all("received", by=by)]


def find_clients(version: str) -> JavaToolchain:
    """Return the clients of a release with our scenarios compiled against them."""
    return JavaToolchain.find(CLIENTS, rocketmq=version)


def scenario_command(
    toolchain: JavaToolchain,
    home: Path,
    namesrv: str,
    names: Iterable[str],
    accounts: Mapping[str, str] | None = None,
    *,
    flags: Iterable[str] = (),
) -> list[str]:
    """Return the command that runs scenarios; logs and offsets go to ``home``.

    ``accounts`` has "key:secret" for who signs, "user" and "operator" at the least.
    """
    signing = (f"-Daccess.{name}={keys}" for name, keys in (accounts or {}).items())
    own = (f"-Duser.home={home}", *HEAP_FLAGS, *HURRY_FLAGS, *signing)
    return toolchain.command("Scenarios", namesrv, *names, flags=(*own, *flags))


def run_scenarios(
    toolchain: JavaToolchain,
    home: Path,
    namesrv: str,
    names: Iterable[str],
    accounts: Mapping[str, str] | None = None,
    *,
    flags: Iterable[str] = (),
) -> dict[str, Told]:
    """Run scenarios in one Java process and return what each said, whether it went well or not."""
    home.mkdir(exist_ok=True)
    done = subprocess.run(
        scenario_command(toolchain, home, namesrv, names, accounts, flags=flags),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SCENARIOS_TIMEOUT_S,
        check=False,
    )
    told = gather(done.stdout.splitlines())
    if done.returncode != 0:
        raise JavaProcessError(f"the Java clients failed:\n{done.stderr[-6000:]}")
    return told


def gather(lines: Iterable[str]) -> dict[str, Told]:
    """Sort what was said by scenario."""
    told: dict[str, Told] = {}
    for line in parsed(lines):
        told.setdefault(line["scenario"], Told(line["scenario"])).lines.append(line)
    return told


def parsed(lines: Iterable[str]) -> Iterator[Line]:
    """Yield the JSON among lines; libraries may print something of their own in between."""
    for line in lines:
        if line.startswith('{"scenario"'):
            yield json.loads(line)


def went_well(told: dict[str, Told], name: str) -> Told:
    """Return what a scenario said that came to its end."""
    assert name in told, f"{name} has said nothing"
    last = told[name].lines[-1]
    assert last["kind"] == "end", last.get("error", last)
    return told[name]


def offsets_by_queue(lines: Iterable[Line]) -> dict[int, list[int]]:
    """Return the queue offsets of each queue, in the order of the lines."""
    found: dict[int, list[int]] = defaultdict(list)
    for line in lines:
        found[line["queueId"]].append(line["queueOffset"])
    return dict(found)
