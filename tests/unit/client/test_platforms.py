"""Which platforms there are: the page, the package and the tool say the same, and it is true."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

from flintmq.testing import EmbeddedCluster
from tools.platform_wheels import PLATFORMS, PYTHONS, SOURCE_ONLY, pinned, wheel_requirements

PROJECT: Final = Path(__file__).parents[3]
PAGE: Final = (PROJECT / "docs" / "platforms.md").read_text()

WITHOUT_LINUX: Final = """
import asyncio, mmap, os, socket, sys

for name in ("fdatasync", "posix_fallocate", "posix_fadvise", "O_TMPFILE", "preadv", "memfd_create",
             "sched_getaffinity", "eventfd", "pidfd_open"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("TCP_KEEPIDLE", "TCP_USER_TIMEOUT", "TCP_QUICKACK"):
    if hasattr(socket, name):
        delattr(socket, name)
os.process_cpu_count = os.cpu_count  # Python 3.13 has asked for the affinity when it was loaded.
sys.platform = "darwin"

from flintmq import ConsumeFrom, LitePullConsumer, Message, Producer
from flintmq.cli.main import run

namesrv = sys.argv[1]
with Producer(namesrv=namesrv) as producer:
    producer.send(Message(topic="anywhere", body=b"x", keys=["k"]))
    assert [one.body for one in producer.query_messages("anywhere", "k")] == [b"x"]
with LitePullConsumer(
    namesrv=namesrv,
    group="anybody",
    subscriptions={"anywhere": "*"},
    consume_from=ConsumeFrom.FIRST_OFFSET,
) as consumer:
    assert [one.body for one in consumer.poll(timeout_ms=30_000)] == [b"x"]
assert run(["admin", "-n", namesrv, "-o", "json", "topicList"]) == 0
loaded = [name for name in sys.modules if name.startswith(("flintmq.store", "flintmq.broker"))]
assert loaded == [], loaded
"""


def test_client_and_admin_need_nothing_that_only_linux_has() -> None:
    with EmbeddedCluster() as mq:
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_LINUX, mq.namesrv],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert "anywhere" in done.stdout


def test_page_package_and_tool_name_the_same() -> None:
    named = re.findall(r"^\| (\w+ [\w-]+) \| (?:yes|meant to work)", PAGE, re.MULTILINE)
    assert named == [platform.name for platform in PLATFORMS]
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert tuple(versions) == PYTHONS
    assert all(version in PAGE for version in PYTHONS)
    for name in SOURCE_ONLY:
        assert name in PAGE.lower()


@pytest.mark.parametrize("lock", sorted({lock for one in PLATFORMS for lock in one.locks}))
def test_all_that_is_pinned_is_asked_for_but_what_has_no_wheels(lock: str) -> None:
    text = (PROJECT / "requirements" / f"{lock}.lock").read_text()
    names = {name for name, _ in pinned(text)}
    asked = {name for python in PYTHONS for name, _ in pinned(wheel_requirements(text, python))}
    assert len(names) > 5
    assert names - asked <= SOURCE_ONLY.keys()
    assert text.count("--hash=") >= len(names)


def test_a_package_that_only_older_pythons_need_is_asked_for_them_alone() -> None:
    lock = "old==1 ; python_full_version < '3.14' \\\n  --hash=a\nnew==2 \\\n  --hash=b\n"
    asked = {python: wheel_requirements(lock, python) for python in ("3.9", "3.13", "3.14")}
    assert asked["3.9"] == asked["3.13"] == "old==1 \\\n  --hash=a\nnew==2 \\\n  --hash=b\n"
    assert asked["3.14"] == "new==2 \\\n  --hash=b\n"
