"""The error of a call that has stored some of its messages and not the others."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from flintmq.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.client.messaging.messages import Message, SendResult


class BatchFailedError(ClientError):
    """A batch was not acknowledged after others of the same call were stored.

    ``results`` has the batches that are stored, and ``stored`` their messages.  Of those in
    ``failed`` it is not known; ``unsent`` are the rest.  Without sharding keys the messages of a
    call are sent in their order.  The cause of it all is the error that this one was raised from.
    """

    def __init__(
        self,
        results: Sequence[SendResult],
        batches: Sequence[Sequence[Message]],
    ) -> None:
        self.results = list(results)
        done = len(self.results)
        self.stored = list(itertools.chain(*batches[:done]))
        self.failed = list(batches[done])
        self.unsent = list(itertools.chain(*batches[done + 1 :]))
        self.stored_count = len(self.stored)
        self.failed_count = len(self.failed)
        super().__init__(
            f"{self.stored_count} of {sum(map(len, batches))} messages are stored, "
            f"{self.failed_count} were not acknowledged, the rest was not sent"
        )
