"""FlintMQ: Apache RocketMQ 4.9 rebuilt in Python, on the same files and the same wire."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from flintmq.client.blocking import LitePullConsumer, Producer, PullConsumer, PushConsumer
    from flintmq.client.consume_from import ConsumeFrom
    from flintmq.client.errors import ClientError, NoRouteError, ResponseError, SendFailedError
    from flintmq.client.handlers import ConsumeResult
    from flintmq.client.lite_pull_consumer import AsyncLitePullConsumer
    from flintmq.client.messages import Message, ReceivedMessage, SendResult, SendStatus
    from flintmq.client.options import Credentials
    from flintmq.client.producer import AsyncProducer
    from flintmq.client.pull_consumer import AsyncPullConsumer
    from flintmq.client.push_consumer import AsyncPushConsumer
    from flintmq.client.sharing import MessageModel
    from flintmq.model.message_queue import MessageQueue

    __version__: str

__all__ = [
    "AsyncLitePullConsumer",
    "AsyncProducer",
    "AsyncPullConsumer",
    "AsyncPushConsumer",
    "ClientError",
    "ConsumeFrom",
    "ConsumeResult",
    "Credentials",
    "LitePullConsumer",
    "Message",
    "MessageModel",
    "MessageQueue",
    "NoRouteError",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "ReceivedMessage",
    "ResponseError",
    "SendFailedError",
    "SendResult",
    "SendStatus",
    "__version__",
]

_HOMES: Final = {
    "AsyncLitePullConsumer": "flintmq.client.lite_pull_consumer",
    "AsyncProducer": "flintmq.client.producer",
    "AsyncPullConsumer": "flintmq.client.pull_consumer",
    "AsyncPushConsumer": "flintmq.client.push_consumer",
    "ClientError": "flintmq.client.errors",
    "ConsumeFrom": "flintmq.client.consume_from",
    "ConsumeResult": "flintmq.client.handlers",
    "Credentials": "flintmq.client.options",
    "LitePullConsumer": "flintmq.client.blocking",
    "Message": "flintmq.client.messages",
    "MessageModel": "flintmq.client.sharing",
    "MessageQueue": "flintmq.model.message_queue",
    "NoRouteError": "flintmq.client.errors",
    "Producer": "flintmq.client.blocking",
    "PullConsumer": "flintmq.client.blocking",
    "PushConsumer": "flintmq.client.blocking",
    "ReceivedMessage": "flintmq.client.messages",
    "ResponseError": "flintmq.client.errors",
    "SendFailedError": "flintmq.client.errors",
    "SendResult": "flintmq.client.messages",
    "SendStatus": "flintmq.client.messages",
}
"""Where the public names live.  They are loaded when asked for: tools need no client."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("flintmq")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
