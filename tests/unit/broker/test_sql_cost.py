"""What SQL92 expressions may cost a broker: to compile, to ask, and for the notes on messages."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from flintmq.broker.filtering.sql_filter import SqlFilter
from flintmq.broker.tables import filter_table
from flintmq.broker.tables.filter_table import FilterTable
from flintmq.broker.waiting.awaited_queue import JUDGED_COUNT_MAX, Judging
from flintmq.filter.sql92 import compile_sql
from flintmq.format.wire.codes import ResponseCode
from tests.kits.broker.broker_kit import site
from tests.kits.broker.sql_kit import ON, bodies, check, group_of, send_numbers, sql

LONG: Final = " OR ".join(f"n = {number}" for number in range(200))
WRONG: Final = LONG + " OR"
WITH_NOTES: Final = {**ON, "enableCalcFilterBitMap": "true", "enableConsumeQueueExt": "true"}


async def test_no_long_expression_is_compiled_in_one_go_whoever_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once: list[str] = []
    in_slices: list[str] = []
    compiled = FilterTable.compiled

    def watched(table: FilterTable, expression: str) -> object:
        if table.takes_long(expression):
            at_once.append(expression)
        return compiled(table, expression)

    monkeypatch.setattr(FilterTable, "compiled", watched)
    async with site(tmp_path, **ON) as here:
        wire, turns = await here.client(), here.broker.context.turns
        run: Callable[..., object] = turns.run

        def noted(steps: object, name: str, *owner: object) -> object:
            in_slices.append(name)
            return run(steps, name, *owner)

        monkeypatch.setattr(turns, "run", noted)
        await send_numbers(wire, 5)
        in_pull = {"expression_type": "SQL92", "subscription": LONG + " OR n = 1000"}
        assert len(await bodies(wire, **in_pull)) == 5
        assert len(await bodies(wire, **in_pull)) == 5
        in_pull["subscription"] = WRONG
        answer = await wire.pull_raw("orders", **in_pull)
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert (await check(wire, LONG + " OR n = 2000"))[0] == ResponseCode.SUCCESS
        wrong, remark = await check(wire, WRONG + " OR")
        assert wrong == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert remark is not None
        assert "ParseException" in remark
        # What was compiled, or found wrong, is remembered.
        assert in_slices.count("SQL92 expression") == 4
        await wire.heartbeat(consumer=group_of(sql("orders", LONG)))
        assert len(await bodies(wire, sys_flag=0, sub_version=1)) == 5
    async with site(tmp_path, **ON) as here:
        # What is in the file is compiled before anybody comes.
        wire = await here.client()
        await wire.heartbeat(consumer=group_of(sql("orders", LONG)))
        assert len(await bodies(wire, sys_flag=0, sub_version=1)) == 5
    assert set(at_once) <= {LONG}


async def test_of_two_versions_that_are_compiled_side_by_side_the_newer_one_counts(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, **ON) as here:
        filters = here.broker.context.filters
        older = filters.register("consumers", [sql("orders", LONG, version=1)])
        newer = filters.register("consumers", [sql("orders", "n = 1", version=2)])
        next(older)
        for steps in (newer, older):
            for _ in steps:
                await asyncio.sleep(0)
        entry = filters.get("orders", "consumers")
        assert entry is not None
        assert (entry.version, entry.expression) == (2, "n = 1")
        chosen = filters.filter_of("orders", "consumers")
        assert chosen is not None
        assert chosen.cost == compile_sql("n = 1").cost


def test_a_costly_expression_is_asked_less_often_of_new_messages() -> None:
    asked = 0

    def properties() -> Mapping[str, str]:
        nonlocal asked
        asked += 1
        return {"n": "-1"}

    costly = SqlFilter(compile_sql(" OR ".join(["n = 7"] * 300)))
    judging = Judging()
    # Whoever has not been asked reads for himself, which has its own bounds.
    found = [judging.matches(costly, 0, properties) for _ in range(JUDGED_COUNT_MAX)]
    assert asked == JUDGED_COUNT_MAX // costly.weight + 1
    assert found == [False] * asked + [True] * (JUDGED_COUNT_MAX - asked)


async def test_a_topic_whose_notes_would_cost_too_much_has_none_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, **WITH_NOTES) as here:
        wire, filters = await here.client(), here.broker.context.filters
        await wire.heartbeat(consumer=group_of(sql("orders", "n = 1")))
        properties = {"n": "1"}
        assert filters.bitmap("orders", properties)
        monkeypatch.setattr(filter_table, "BITMAP_COST_MAX", compile_sql("n = 1").cost)
        assert filters.bitmap("orders", properties)
        await wire.heartbeat(consumer=group_of(sql("orders", "n = 1"), group="others"))
        assert filters.bitmap("orders", properties) is None
        await send_numbers(wire, 3)
        assert await bodies(wire, sys_flag=0, sub_version=1) == [b"1"]
