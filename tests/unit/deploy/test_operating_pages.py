"""The pages for operators are true: every metric and every code of an answer is on them."""

import itertools
import re
import shlex
from pathlib import Path
from typing import Final

import click
import pytest

from flintmq.cli.main import flintmq
from flintmq.format.wire.codes import ResponseCode
from flintmq.namesrv import NamesrvConfig, run_namesrv
from tests.kits.broker.broker_kit import site
from tests.kits.broker.scrape_kit import Scraped, scrape

ROOT: Final = Path(__file__).parents[3]
OPERATING: Final = ROOT / "docs" / "operating"
ROW: Final = re.compile(r"^\| `([a-z_]+)` \| (\w+) \| (\w[\w ]*) \| (.+) \|$", re.M)
SUMMED_UP: Final = ("process_", "rocketmq_brokeruntime_")


def told(scraped: Scraped) -> dict[str, tuple[str, str]]:
    """Return kind and meaning of each metric that has a row of its own."""
    lines = scraped.text.splitlines()
    found = {}
    for meaning, kind in itertools.pairwise(lines):
        if meaning.startswith("# HELP"):
            _, _, name, text = meaning.split(" ", 3)
            if not name.startswith(SUMMED_UP):
                found[name] = (kind.split(" ")[3], text)
    return found


async def test_the_page_has_every_metric_that_servers_show(tmp_path: Path) -> None:
    shown = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}
    pairs = {"listenPort": "0", "kvConfigPath": str(tmp_path / "kv")}
    pairs |= {"configStorePath": str(tmp_path / "namesrv.properties")}
    config = NamesrvConfig.from_properties(pairs | shown)
    async with run_namesrv(config) as namesrv, site(tmp_path / "store", **shown) as here:
        assert namesrv.metrics_address is not None
        assert here.broker.metrics_address is not None
        broker = told(await scrape(here.broker.metrics_address))
        of_namesrv = told(await scrape(namesrv.metrics_address))
    expected = {}
    for name, (kind, text) in (broker | of_namesrv).items():
        owners = "both" if name in broker and name in of_namesrv else ""
        expected[name] = (kind, owners or ("broker" if name in broker else "name server"), text)
    page = (OPERATING / "monitoring.md").read_text()
    assert {name: tuple(rest) for name, *rest in ROW.findall(page)} == expected


def test_the_index_has_every_code_that_servers_answer_with() -> None:
    sources = [
        path.read_text()
        for package in ("broker", "namesrv", "access", "remoting")
        for path in (ROOT / "src" / "flintmq" / package).rglob("*.py")
    ]
    used = set(re.findall(r"ResponseCode\.([A-Z_]+)", "\n".join(sources))) - {"SUCCESS"}
    index = (OPERATING / "README.md").read_text().split("## Error codes")[1]
    rows = [line.split("|") for line in index.splitlines() if re.match(r"\| \d", line)]
    listed = {
        name: int(number)
        for _, numbers, names, *_ in rows
        for number, name in zip(numbers.split(","), re.findall(r"[A-Z_]{4,}", names), strict=True)
    }
    assert used - listed.keys() == set()
    assert listed == {name: ResponseCode[name].value for name in listed}


def console_commands() -> list[tuple[str, str]]:
    """Return the commands of ours that the pages for operators show, each with its page."""
    found = []
    for path in sorted(OPERATING.glob("*.md")):
        for block in re.findall(r"^```console\n(.*?)^```", path.read_text(), re.M | re.S):
            for line in re.sub(r"\\\n(> *)?", " ", block).splitlines():
                command = re.match(r"[$#] flintmq (.*)", line)
                if command is not None and "[" not in command[1] and "…" not in command[1]:
                    found.append((path.name, command[1]))
    return found


@pytest.mark.parametrize(("page", "line"), console_commands())
def test_commands_on_the_pages_exist_with_their_options(page: str, line: str) -> None:
    words = list(itertools.takewhile(lambda word: word != ">", shlex.split(line)))
    command: click.Command = flintmq
    # A command remembers the names of its help from the first context that asks for them.
    context = click.Context(command, **command.context_settings)
    while True:
        _, words, _ = command.make_parser(context).parse_args(words)
        if not isinstance(command, click.Group) or not words:
            return
        name, *words = words
        found = command.get_command(context, name)
        assert found is not None, f"{page}: there is no {name}"
        command, context = found, click.Context(found, parent=context)


def test_there_are_commands_on_the_pages() -> None:
    assert len(console_commands()) > 20
