"""Pull requests, the pull and the lite pull consumer, and messages that are given back."""

__all__ = [
    "consume_trace",
    "lite_pull_consumer",
    "lite_pull_settings",
    "pull_consumer",
    "puller",
    "queue_pulling",
    "send_back",
]
