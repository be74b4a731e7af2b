"""Push consumers of the official Java clients choose messages by SQL92."""

from pathlib import Path
from typing import Final

import pytest

from tests.kits.processes.java_clients import find_clients, run_scenarios, went_well
from tests.kits.processes.serving import Serving

pytestmark = pytest.mark.interop

WITH_BITS: Final = {"enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true"}


@pytest.mark.parametrize(
    ("version", "settings"), [("4.9.8", {}), ("5.3.3", {}), ("4.9.8", WITH_BITS)]
)
def test_a_push_consumer_gets_what_its_expression_wants_and_is_told_what_is_wrong_with_it(
    version: str, settings: dict[str, str], tmp_path: Path
) -> None:
    toolchain = find_clients(version)
    with Serving(tmp_path / "data", {"enablePropertyFilter": "true", **settings}) as servers:
        run = run_scenarios(toolchain, tmp_path / "home", servers.namesrv, ["sql"])
    told = went_well(run, "sql")
    wanted = [f"body-{number}" for number in (3, 4, 5, 6, 41, 44, 47)]
    assert sorted(told.bodies("consumer")) == sorted(wanted)
    refused = told.one("refused")
    assert 'Encountered "<EOF>" at line 1, column 8.' in refused["message"]
