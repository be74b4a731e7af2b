"""How long the names in requests may be, in headers and bodies alike.

RocketMQ 4.9 checks the length of a topic when it is made and leaves that of groups to its
clients.  Servers keep names in tables, in state files and in the log, so here every name that
comes in is checked, before anything is remembered.
"""

from typing import Final

from flintmq.model.topics import DLQ_PREFIX, RETRY_PREFIX

GROUP_LENGTH_MAX: Final = 255
"""The limit of RocketMQ's clients."""

CLIENT_ID_LENGTH_MAX: Final = 1024
EXPRESSION_LENGTH_MAX: Final = 64 << 10
"""Characters of a subscription expression; a list of some thousand tags."""

TOPIC_LENGTH_MAX: Final = GROUP_LENGTH_MAX + max(len(RETRY_PREFIX), len(DLQ_PREFIX))
"""The retry topic of a group with the longest name.

Consumers of such a group pull it.  A topic that messages can be sent to has at most 127 characters,
which is checked where topics are made (`topic_names`).
"""

NAME_LENGTHS: Final = {
    "brokerAddr": GROUP_LENGTH_MAX,
    "brokerName": GROUP_LENGTH_MAX,
    "clientAddr": GROUP_LENGTH_MAX,
    "clientID": CLIENT_ID_LENGTH_MAX,
    "clientId": CLIENT_ID_LENGTH_MAX,
    "cluster": GROUP_LENGTH_MAX,
    "clusterName": GROUP_LENGTH_MAX,
    "compareGroup": GROUP_LENGTH_MAX,
    "consumerGroup": GROUP_LENGTH_MAX,
    "defaultTopic": TOPIC_LENGTH_MAX,
    "destGroup": GROUP_LENGTH_MAX,
    "expressionType": GROUP_LENGTH_MAX,
    "group": GROUP_LENGTH_MAX,
    "groupName": GROUP_LENGTH_MAX,
    "haServerAddr": GROUP_LENGTH_MAX,
    "namespace": GROUP_LENGTH_MAX,
    "originTopic": TOPIC_LENGTH_MAX,
    "producerGroup": GROUP_LENGTH_MAX,
    "srcGroup": GROUP_LENGTH_MAX,
    "statsName": GROUP_LENGTH_MAX,
    "subString": EXPRESSION_LENGTH_MAX,
    "subscription": EXPRESSION_LENGTH_MAX,
    "topic": TOPIC_LENGTH_MAX,
    "topicName": TOPIC_LENGTH_MAX,
}
"""Characters that a field may have, by its name in Java; others are not kept as names."""
