"""Tests of the client leave nothing behind: no thread, task, descriptor or directory."""

import pytest


@pytest.fixture(autouse=True)
def looked_after(leaves_nothing: None) -> None:
    """Have each test here looked after."""
