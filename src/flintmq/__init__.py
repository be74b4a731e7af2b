"""FlintMQ: Apache RocketMQ 4.9 rebuilt in Python, on the same files and the same wire."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from flintmq.client.assigning.consume_from import ConsumeFrom
    from flintmq.client.assigning.sharing import MessageModel, SharingRules
    from flintmq.client.assigning.strategies import (
        ConsistentHash,
        FixedQueues,
        MachineRoom,
        MachineRoomNearby,
        QueueStrategy,
        averagely,
        by_circle,
    )
    from flintmq.client.blocking import (
        LitePullConsumer,
        Producer,
        PullConsumer,
        PushConsumer,
    )
    from flintmq.client.consuming.consume_hooks import ConsumeHook, MessageFilter
    from flintmq.client.consuming.handlers import ConsumeLater, ConsumeResult, Handler, Outcome
    from flintmq.client.consuming.push_consumer import AsyncPushConsumer
    from flintmq.client.consuming.push_settings import PushSettings
    from flintmq.client.errors import (
        AccessDeniedError,
        ClientError,
        ConsumerNotOnlineError,
        FlowControlError,
        GroupNotExistError,
        MessageIllegalError,
        MessageNotFoundError,
        NoNameServerError,
        NoPermissionError,
        NoRouteError,
        NotFoundError,
        RequestTimeoutError,
        ResponseError,
        SendFailedError,
        ServiceNotAvailableError,
        SubscriptionNotExistError,
        SubscriptionNotLatestError,
        SubscriptionParseError,
        SystemBusyError,
        SystemFailureError,
        TopicNotExistError,
        UnreadableBodyError,
        UsageError,
    )
    from flintmq.client.instance import ClientInstance
    from flintmq.client.messaging.messages import (
        Message,
        ReceivedMessage,
        SendResult,
        SendStatus,
    )
    from flintmq.client.messaging.transaction_listener import (
        TransactionListener,
        TransactionResult,
        TransactionState,
    )
    from flintmq.client.options import ClientOptions, Credentials
    from flintmq.client.options_file import load_options
    from flintmq.client.producing.batch_failure import BatchFailedError
    from flintmq.client.producing.producer import AsyncProducer, SendHook
    from flintmq.client.producing.producer_settings import ProducerSettings
    from flintmq.client.producing.queue_choice import QueueSelector
    from flintmq.client.pulling.lite_pull_consumer import AsyncLitePullConsumer
    from flintmq.client.pulling.lite_pull_settings import LitePullSettings
    from flintmq.client.pulling.pull_consumer import AsyncPullConsumer
    from flintmq.client.pulling.puller import PullResult, PullStatus
    from flintmq.errors import FlintError
    from flintmq.format.sys_flag import CompressionType
    from flintmq.model.message_queue import MessageQueue
    from flintmq.remoting import RemotingError
    from flintmq.remoting.tls_files import TlsFiles

    __version__: str

__all__ = [
    "AccessDeniedError",
    "AsyncLitePullConsumer",
    "AsyncProducer",
    "AsyncPullConsumer",
    "AsyncPushConsumer",
    "BatchFailedError",
    "ClientError",
    "ClientInstance",
    "ClientOptions",
    "CompressionType",
    "ConsistentHash",
    "ConsumeFrom",
    "ConsumeHook",
    "ConsumeLater",
    "ConsumeResult",
    "ConsumerNotOnlineError",
    "Credentials",
    "FixedQueues",
    "FlintError",
    "FlowControlError",
    "GroupNotExistError",
    "Handler",
    "LitePullConsumer",
    "LitePullSettings",
    "MachineRoom",
    "MachineRoomNearby",
    "Message",
    "MessageFilter",
    "MessageIllegalError",
    "MessageModel",
    "MessageNotFoundError",
    "MessageQueue",
    "NoNameServerError",
    "NoPermissionError",
    "NoRouteError",
    "NotFoundError",
    "Outcome",
    "Producer",
    "ProducerSettings",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "PushSettings",
    "QueueSelector",
    "QueueStrategy",
    "ReceivedMessage",
    "RemotingError",
    "RequestTimeoutError",
    "ResponseError",
    "SendFailedError",
    "SendHook",
    "SendResult",
    "SendStatus",
    "ServiceNotAvailableError",
    "SharingRules",
    "SubscriptionNotExistError",
    "SubscriptionNotLatestError",
    "SubscriptionParseError",
    "SystemBusyError",
    "SystemFailureError",
    "TlsFiles",
    "TopicNotExistError",
    "TransactionListener",
    "TransactionResult",
    "TransactionState",
    "UnreadableBodyError",
    "UsageError",
    "__version__",
    "averagely",
    "by_circle",
    "load_options",
]

_HOMES: Final = {
    "AccessDeniedError": "flintmq.client.errors",
    "AsyncLitePullConsumer": "flintmq.client.pulling.lite_pull_consumer",
    "AsyncProducer": "flintmq.client.producing.producer",
    "AsyncPullConsumer": "flintmq.client.pulling.pull_consumer",
    "AsyncPushConsumer": "flintmq.client.consuming.push_consumer",
    "UnreadableBodyError": "flintmq.client.errors",
    "ClientError": "flintmq.client.errors",
    "BatchFailedError": "flintmq.client.producing.batch_failure",
    "ClientInstance": "flintmq.client.instance",
    "ClientOptions": "flintmq.client.options",
    "CompressionType": "flintmq.format.sys_flag",
    "ConsistentHash": "flintmq.client.assigning.strategies",
    "ConsumeFrom": "flintmq.client.assigning.consume_from",
    "ConsumeHook": "flintmq.client.consuming.consume_hooks",
    "ConsumeLater": "flintmq.client.consuming.handlers",
    "ConsumeResult": "flintmq.client.consuming.handlers",
    "ConsumerNotOnlineError": "flintmq.client.errors",
    "Credentials": "flintmq.client.options",
    "FixedQueues": "flintmq.client.assigning.strategies",
    "FlintError": "flintmq.errors",
    "FlowControlError": "flintmq.client.errors",
    "GroupNotExistError": "flintmq.client.errors",
    "Handler": "flintmq.client.consuming.handlers",
    "LitePullConsumer": "flintmq.client.blocking",
    "LitePullSettings": "flintmq.client.pulling.lite_pull_settings",
    "MachineRoom": "flintmq.client.assigning.strategies",
    "MachineRoomNearby": "flintmq.client.assigning.strategies",
    "Message": "flintmq.client.messaging.messages",
    "MessageFilter": "flintmq.client.consuming.consume_hooks",
    "MessageIllegalError": "flintmq.client.errors",
    "MessageModel": "flintmq.client.assigning.sharing",
    "MessageNotFoundError": "flintmq.client.errors",
    "MessageQueue": "flintmq.model.message_queue",
    "NoNameServerError": "flintmq.client.errors",
    "NoPermissionError": "flintmq.client.errors",
    "NoRouteError": "flintmq.client.errors",
    "NotFoundError": "flintmq.client.errors",
    "Outcome": "flintmq.client.consuming.handlers",
    "Producer": "flintmq.client.blocking",
    "ProducerSettings": "flintmq.client.producing.producer_settings",
    "PullConsumer": "flintmq.client.blocking",
    "PullResult": "flintmq.client.pulling.puller",
    "PullStatus": "flintmq.client.pulling.puller",
    "PushConsumer": "flintmq.client.blocking",
    "PushSettings": "flintmq.client.consuming.push_settings",
    "QueueSelector": "flintmq.client.producing.queue_choice",
    "QueueStrategy": "flintmq.client.assigning.strategies",
    "ReceivedMessage": "flintmq.client.messaging.messages",
    "RemotingError": "flintmq.remoting",
    "RequestTimeoutError": "flintmq.client.errors",
    "ResponseError": "flintmq.client.errors",
    "SendFailedError": "flintmq.client.errors",
    "SendHook": "flintmq.client.producing.producer",
    "SendResult": "flintmq.client.messaging.messages",
    "SendStatus": "flintmq.client.messaging.messages",
    "ServiceNotAvailableError": "flintmq.client.errors",
    "SharingRules": "flintmq.client.assigning.sharing",
    "SubscriptionNotExistError": "flintmq.client.errors",
    "SubscriptionNotLatestError": "flintmq.client.errors",
    "SubscriptionParseError": "flintmq.client.errors",
    "SystemBusyError": "flintmq.client.errors",
    "SystemFailureError": "flintmq.client.errors",
    "TlsFiles": "flintmq.remoting.tls_files",
    "TopicNotExistError": "flintmq.client.errors",
    "TransactionListener": "flintmq.client.messaging.transaction_listener",
    "TransactionResult": "flintmq.client.messaging.transaction_listener",
    "TransactionState": "flintmq.client.messaging.transaction_listener",
    "UsageError": "flintmq.client.errors",
    "averagely": "flintmq.client.assigning.strategies",
    "by_circle": "flintmq.client.assigning.strategies",
    "load_options": "flintmq.client.options_file",
}
"""Where the public names live.  They are loaded when asked for: tools need no client."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("flintmq")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
