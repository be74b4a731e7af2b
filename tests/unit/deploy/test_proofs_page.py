"""Every test that the page of promises names is there."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
PAGE = TESTS.parent / "docs" / "operating" / "proofs.md"


def test_every_promise_has_a_test_that_is_there() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    promises = [line for line in rows if not line.startswith(("| Promise", "| ---"))]
    missing = []
    for line in promises:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", line)
        assert named, line
        for path, name in named:
            tree = ast.parse((TESTS / path).read_text())
            functions = [
                one for one in tree.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            if name not in [one.name for one in functions]:
                missing.append(f"{path}::{name}")
    assert missing == []
    assert len(promises) > 30
