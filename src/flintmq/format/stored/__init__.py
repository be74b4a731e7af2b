"""The bytes of store files: log records, batches, queues, index, checkpoint."""

__all__ = [
    "batch",
    "checkpoint",
    "consume_queue",
    "consume_queue_ext",
    "dispatch_fields",
    "field_table",
    "index_file",
    "pulled_records",
    "queue_claims",
    "record",
    "record_encoding",
    "record_layout",
    "record_search",
]
