"""SQL92 against the evaluator of the Java broker: expressions made up at random, right and wrong.

Set FLINTMQ_SQL_SEED to have other ones.
"""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import pytest

from flintmq.filter.errors import EvaluationError, SqlFilterError
from flintmq.filter.sql92 import compile_sql
from tests.kits.filter.sql_generator import Pair, SqlGenerator
from tests.kits.processes.java_toolchain import JavaToolchain

pytestmark = pytest.mark.interop

PAIR_COUNT: Final = 8000
OUTCOME_COUNT_MIN: Final = 200
"""Pairs of each outcome, so that agreeing means something."""


def java_judges(toolchain: JavaToolchain, pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    done = subprocess.run(
        toolchain.command("EvaluateFilter"),
        input="".join(json.dumps(pair._asdict()) + "\n" for pair in pairs),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def we_judge(pair: Pair) -> dict[str, str]:
    try:
        compiled = compile_sql(pair.expression)
    except SqlFilterError as error:
        return {"outcome": "COMPILE_ERROR", "message": str(error)}
    try:
        value = compiled.evaluate(pair.properties)
    except EvaluationError:
        return {"outcome": "EVALUATION_ERROR"}
    return {"outcome": "VALUE"} if value is None else {"outcome": "VALUE", "value": str(value)}


def class_of(judged: dict[str, Any]) -> tuple[str, str | None]:
    value = judged.get("value")
    return judged["outcome"], None if value is None else value.lower()


def test_expressions_are_judged_as_java_judges_them(toolchain: JavaToolchain) -> None:
    seed = int(os.environ.get("FLINTMQ_SQL_SEED", "20"))
    generator = SqlGenerator(seed)
    pairs = [generator.pair() for _ in range(PAIR_COUNT)]
    java = java_judges(toolchain, pairs)
    assert len(java) == PAIR_COUNT
    ours = [we_judge(pair) for pair in pairs]
    judged = list(zip(pairs, ours, java, strict=True))
    assert [one for one in judged if class_of(one[1]) != class_of(one[2])] == [], seed
    counts = Counter(map(class_of, ours))
    assert len(counts) == 5
    assert min(counts.values()) >= OUTCOME_COUNT_MIN, counts
    wrong = [one for one in judged if one[1]["outcome"] == "COMPILE_ERROR"]
    # Of two mistakes Java sometimes tells the other one, and its sets have an order of their own.
    differing = [one for one in wrong if one[1]["message"] != one[2]["message"]]
    assert len(differing) <= len(wrong) // 100, differing[:3]
