"""Batches: messages of one topic, cut so that each part can be sent in one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flintmq.client.messaging.envelope import split_by_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.client.messaging.messages import Message
    from flintmq.format.stored.batch import BatchColumns
    from flintmq.model.message_queue import MessageQueue


class Batch(NamedTuple):
    """Messages that are stored together or not at all."""

    queue: MessageQueue | None
    """Where they have to go; None if any queue will do."""
    messages: Sequence[Message]
    items: BatchColumns


def cut_batches(
    queue: MessageQueue | None,
    messages: Sequence[Message],
    items: BatchColumns,
    batch_size: int,
) -> list[Batch]:
    """Cut messages with one target into batches of at most ``batch_size`` bytes."""
    parts = split_by_size(items, batch_size)
    if len(parts) == 1:
        return [Batch(queue, messages, items)]
    found, at = [], 0
    for part in parts:
        end = at + len(part.bodies)
        found.append(Batch(queue, messages[at:end], part))
        at = end
    return found
