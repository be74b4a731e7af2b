"""Batches: messages of one topic, cut so that each part can be sent in one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flintmq.client.messaging.envelope import split_by_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.client.messaging.messages import Message
    from flintmq.format.stored.batch import BatchItem
    from flintmq.model.message_queue import MessageQueue


class Batch(NamedTuple):
    """Messages that are stored together or not at all."""

    queue: MessageQueue | None
    """Where they have to go; None if any queue will do."""
    messages: list[Message]
    items: list[BatchItem]


def cut_batches(
    queue: MessageQueue | None,
    messages: Sequence[Message],
    items: Sequence[BatchItem],
    batch_size: int,
) -> list[Batch]:
    """Cut messages with one target into batches of at most ``batch_size`` bytes."""
    found, at = [], 0
    for part in split_by_size(items, batch_size):
        found.append(Batch(queue, list(messages[at : at + len(part)]), part))
        at += len(part)
    return found
