"""Plain values everyone shares."""

from flintmq.model.message import Message, MessageBatch

__all__ = ["Message", "MessageBatch"]
