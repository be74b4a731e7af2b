"""The recipes for frameworks work as docs/recipes.md shows them."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from fastapi.testclient import TestClient

from examples.recipes import task_worker, web_app
from flintmq import FlintError, Producer
from flintmq.admin import Admin
from flintmq.testing import EmbeddedCluster
from tests.kits.admin.admin_kit import wait_until

PROJECT: Final = Path(__file__).parents[2]
PAGE: Final = (PROJECT / "docs" / "recipes.md").read_text()
BLOCKS: Final = re.findall(
    r"`(examples/recipes/\S+\.py)`(?:(?!```).)*```python\n(.*?)```", PAGE, re.DOTALL
)
TIMEOUT_S: Final = 60


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv)
        yield cluster


def started(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "examples.recipes.shop.settings"}
    command = [sys.executable, "-W", "error", "-m", *arguments]
    return subprocess.Popen(
        command, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, text=True
    )


def test_a_web_service_sends_and_consumes_while_it_lives(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("web-orders", queue_count=1)
    web_app.handled.clear()
    with TestClient(web_app.app) as client:
        answer = client.post("/orders/A-1")
        assert answer.status_code == 202
        assert cluster.wait_for("web-orders", 1)[0].message_id == answer.json()["id"]
        wait_until(lambda: client.get("/handled").json() == ["A-1"])
        with cluster.refusing_sends():
            assert client.post("/orders/A-2").status_code == 503
    assert cluster.lag("web-orders", "web-orders") == 0


def test_a_django_command_consumes_until_it_is_told_to_end(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders", queue_count=1)
    cluster.send("orders", b"7")
    with started("django", "consume_orders", "--namesrv", cluster.namesrv) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "order 7\n"
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=TIMEOUT_S)[0] == "stopped\n"
    assert process.returncode == 0
    assert cluster.lag("django-orders", "orders") == 0


def test_worker_processes_share_tasks_and_end_together(cluster: EmbeddedCluster) -> None:
    for topic in (task_worker.TOPIC, task_worker.RESULTS):
        cluster.create_topic(topic)
    with started("examples.recipes.task_worker", "2") as process:
        with Admin(namesrv=cluster.namesrv) as admin:
            wait_until(lambda: member_count(admin, "task-workers") == 2)
        with Producer(group="task-senders") as producer:
            for number in range(8):
                task_worker.delay(producer, "add", number, 100)
        results = cluster.wait_for(task_worker.RESULTS, 8, timeout_s=TIMEOUT_S)
        assert sorted(int(one.body) for one in results) == list(range(100, 108))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    assert cluster.lag("task-workers", task_worker.TOPIC) == 0


def member_count(admin: Admin, group: str) -> int:
    try:
        return len(admin.consumer_members(group).clients)
    except FlintError:
        return 0


def test_the_page_shows_what_is_run() -> None:
    assert len(BLOCKS) == PAGE.count("```python") == 3
    for path, code in BLOCKS:
        assert code in (PROJECT / path).read_text(), path
