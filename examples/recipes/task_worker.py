"""Tasks in worker processes, as with Celery: ``python -m examples.recipes.task_worker``.

A task is a function; ``delay`` sends its arguments as a message, and one of the worker processes
calls it.  A task that raises is called again later, and becomes a dead letter in the end.
``NAMESRV_ADDR`` names the name server.
"""

import json
import multiprocessing
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from flintmq import ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage

TOPIC = "tasks"
RESULTS = "task-results"

tasks: dict[str, Callable[..., object]] = {}


def task(function: Callable[..., object]) -> Callable[..., object]:
    """Make a function one that workers know by its name."""
    tasks[function.__name__] = function
    return function


def delay(producer: Producer, name: str, *arguments: Any) -> str:
    """Have a worker call a task later; return the id of the message."""
    body = json.dumps(arguments).encode()
    return producer.send(Message(topic=TOPIC, tag=name, body=body)).message_id


@task
def add(left: int, right: int) -> int:
    """Add two numbers."""
    return left + right


def work() -> None:
    """Call tasks until SIGTERM comes, then finish those that run."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # until run() takes it
    with Producer(group="task-workers") as producer:

        def handle(message: ReceivedMessage) -> None:
            result = tasks[message.tag or ""](*json.loads(message.body))
            producer.send(Message(topic=RESULTS, body=json.dumps(result).encode()))

        PushConsumer(
            group="task-workers",
            subscriptions={TOPIC: " || ".join(tasks)},
            handler=handle,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ).run()


def main(worker_count: int) -> int:
    """Run worker processes until SIGTERM or SIGINT; return 0 if all of them ended well."""
    # Consumers are opened after the fork: each process is a member of the group of its own.
    forked = multiprocessing.get_context("fork")
    workers = [forked.Process(target=work) for _ in range(worker_count)]

    def stop(number: int, frame: FrameType | None) -> None:
        for worker in workers:
            worker.terminate()

    signal.signal(signal.SIGTERM, stop)
    # Ctrl-C goes to all processes of a terminal: the workers hear of it by themselves.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return 0 if all(worker.exitcode == 0 for worker in workers) else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2))
