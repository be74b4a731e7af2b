"""The table ``groups``: what config/subscriptionGroup.json says of each consumer group."""

from typing import Final

from flintmq.spark.rows.columns import BOOLEAN, INT, LONG
from flintmq.spark.stored.tables.state_members import StateMemberRowSource, member_columns

_FIELDS: Final = {
    "consumeEnable": BOOLEAN,
    "consumeFromMinEnable": BOOLEAN,
    "consumeBroadcastEnable": BOOLEAN,
    "retryQueueNums": INT,
    "retryMaxTimes": INT,
    "brokerId": LONG,
    "whichBrokerWhenConsumeSlowly": LONG,
    "notifyConsumerIdsChangedEnable": BOOLEAN,
}


class GroupRowSource(StateMemberRowSource):
    """One row for each consumer group that the broker knows."""

    file = "subscriptionGroup.json"
    member_table = "subscriptionGroupTable"
    name = "group"
    fields = tuple(_FIELDS)
    columns = member_columns("group", _FIELDS)
