"""Every block of code in docs/client.md works as it stands there."""

import ast
import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest

from flintmq.testing import EmbeddedCluster

PAGE = Path(__file__).parents[3] / "docs" / "client.md"
_BLOCK = re.compile(r"^## ([^\n]+)\n(?:(?!^## ).)*?```python\n(.*?)```", re.MULTILINE | re.DOTALL)
BLOCKS = _BLOCK.findall(PAGE.read_text())


def test_all_blocks_are_found() -> None:
    assert len(BLOCKS) == PAGE.read_text().count("```python")


@pytest.mark.parametrize(("title", "code"), BLOCKS, ids=[title for title, _ in BLOCKS])
def test_a_block_of_the_page_works(title: str, code: str) -> None:
    with EmbeddedCluster() as mq:
        text = code.replace("127.0.0.1:9876", mq.namesrv)
        names: dict[str, Any] = {"asyncio": asyncio, "time": time, "__name__": "recipe"}
        compiled = compile(text, title, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        outcome = eval(compiled, names)
        if asyncio.iscoroutine(outcome):
            asyncio.run(asyncio.wait_for(outcome, 60))
