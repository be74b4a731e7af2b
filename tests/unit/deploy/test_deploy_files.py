"""What lies under ``deploy``: it parses, its commands exist, its metrics are those we export."""

import configparser
import itertools
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import pytest
import yaml

from flintmq.broker import misspelt_keys, read_settings
from flintmq.cli.main import flintmq
from flintmq.namesrv import NamesrvConfig, run_namesrv
from flintmq.namesrv.config import SETTINGS as NAMESRV_SETTINGS
from flintmq.settings import read_properties, refusals, unknown_keys
from tests.kits.broker.broker_kit import site
from tests.kits.broker.scrape_kit import scrape

DEPLOY: Final = Path(__file__).parents[3] / "deploy"
METRIC: Final = re.compile(r"\b(?:rocketmq|flintmq|process)_[a-z0-9_]+\b")
BUILT_IN: Final = frozenset({"up"})


def board_expressions() -> Iterator[str]:
    board = json.loads((DEPLOY / "grafana" / "flintmq-board.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]


def alerts() -> list[dict[str, Any]]:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "flintmq-alerts.yml").read_text())
    return [rule for group in rules["groups"] for rule in group["rules"]]


async def test_every_metric_of_board_and_alerts_is_exported(tmp_path: Path) -> None:
    shown = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}
    pairs = {"listenPort": "0", "kvConfigPath": str(tmp_path / "kv")}
    pairs |= {"configStorePath": str(tmp_path / "namesrv.properties")}
    config = NamesrvConfig.from_properties(pairs | shown)
    async with run_namesrv(config) as namesrv, site(tmp_path / "store", **shown) as here:
        assert namesrv.metrics_address is not None
        assert here.broker.metrics_address is not None
        exported = (await scrape(namesrv.metrics_address)).names
        exported |= (await scrape(here.broker.metrics_address)).names
    expressions = [*board_expressions(), *(rule["expr"] for rule in alerts())]
    wanted = {name for text in expressions for name in METRIC.findall(text)}
    assert len(wanted) > 30
    assert wanted - exported == set()


def test_alerts_have_what_prometheus_wants() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(names) == len(set(names))
    for rule in alerts():
        assert rule["expr"].count("(") == rule["expr"].count(")"), rule
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"]
        assert METRIC.search(rule["expr"]) or rule["expr"].split("{")[0] in BUILT_IN


def test_every_alert_has_advice() -> None:
    page = (DEPLOY.parent / "docs" / "operating" / "README.md").read_text()
    assert [one["alert"] for one in alerts() if f"`{one['alert']}`" not in page] == []


def test_panels_of_the_board_have_numbers_of_their_own_and_do_not_overlap() -> None:
    board = json.loads((DEPLOY / "grafana" / "flintmq-board.json").read_text())
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for one, other in itertools.combinations([panel["gridPos"] for panel in panels], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)


def unit_commands() -> Iterator[tuple[str, list[str]]]:
    for path in sorted((DEPLOY / "systemd").glob("*.service")):
        unit = configparser.ConfigParser(interpolation=None, strict=False)
        unit.optionxform = str  # type: ignore[assignment, method-assign]
        unit.read_string(path.read_text())
        yield path.name, shlex.split(unit["Service"]["ExecStart"])


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def dockerfile_array(word: str) -> list[str]:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    line = next(line for line in reversed(lines) if line.startswith(word + " "))
    array: list[str] = json.loads(line.removeprefix(word))
    return array


def commands() -> list[tuple[str, list[str]]]:
    """Return where each command stands, and its arguments behind ``flintmq``."""
    ours = [
        (name, service["command"])
        for name, service in compose()["services"].items()
        if service["image"] == "flintmq"
    ]
    units = []
    for name, (program, *arguments) in unit_commands():
        assert program == "/opt/flintmq/bin/flintmq"
        units.append((name, arguments))
    assert dockerfile_array("ENTRYPOINT") == ["flintmq"]
    return [("Dockerfile", dockerfile_array("CMD")), *ours, *units]


@pytest.mark.parametrize(("where", "arguments"), commands())
def test_every_command_exists_with_its_options(where: str, arguments: list[str]) -> None:
    context = click.Context(flintmq, **flintmq.context_settings)
    command = flintmq.get_command(context, arguments[0])
    assert command is not None, where
    parsed = command.make_context(arguments[0], arguments[1:], parent=context)
    assert parsed.params["metrics_port"] is not None


def test_the_files_of_settings_have_no_wrong_key_or_value() -> None:
    broker = read_properties((DEPLOY / "conf" / "broker.conf").read_bytes())
    assert misspelt_keys(broker) == {}
    read_settings(broker)
    namesrv = read_properties((DEPLOY / "conf" / "namesrv.conf").read_bytes())
    assert unknown_keys(namesrv, [NAMESRV_SETTINGS]) == {}
    assert refusals(NAMESRV_SETTINGS, namesrv) == []


def test_files_that_are_mounted_are_there() -> None:
    for service in compose()["services"].values():
        for volume in service.get("volumes", ()):
            if volume.startswith("./"):
                assert (DEPLOY / volume.split(":")[0]).is_file(), volume


def test_prometheus_asks_the_servers_and_reads_the_alerts() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    assert config["rule_files"] == ["flintmq-alerts.yml"]
    (job,) = config["scrape_configs"]
    assert job["job_name"] == "flintmq", "the alerts name the job"
    hosts = {target.split(":")[0] for one in job["static_configs"] for target in one["targets"]}
    assert hosts <= compose()["services"].keys()


def test_grafana_finds_prometheus_and_the_board() -> None:
    services = compose()["services"]
    found = yaml.safe_load((DEPLOY / "grafana" / "datasource.yml").read_text())
    (source,) = found["datasources"]
    assert source["url"].removeprefix("http://").split(":")[0] in services
    (provider,) = yaml.safe_load((DEPLOY / "grafana" / "boards.yml").read_text())["providers"]
    places = [volume.split(":")[1] for volume in services["grafana"]["volumes"]]
    assert f"{provider['options']['path']}/flintmq-board.json" in places


def test_the_image_does_not_run_as_root_and_copies_what_is_there() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    assert re.search(r"^USER flintmq$", text, re.M)
    assert "HEALTHCHECK" in text
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.M):
        *sources, _ = line.split()
        for source in sources:
            assert (DEPLOY.parent / source).exists(), source
