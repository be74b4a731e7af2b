"""Headers of transactions."""

from flintmq.format.wire.headers.codec import Header, Int32, Int64, header


@header
class EndTransactionRequest(Header, wire_names={"broker_name": "bname"}):
    """Says how a transaction ended.

    ``commit_or_rollback`` holds the transaction bits of a system flag: 0 unknown, 8 commit, 12
    rollback.
    """

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None
    broker_name: str | None = None


@header
class CheckTransactionRequest(Header):
    """Asks a producer how a transaction ended."""

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


@header
class ResumeCheckRequest(Header):
    """Puts a half message that was given up back among those to be checked."""

    msg_id: str
