"""Headers of sends that are put together from remembered ones, against those made from nothing."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from flintmq.client.messaging.envelope import Envelope
from flintmq.client.producing.known_sends import KnownSends
from flintmq.format.wire.codes import LanguageCode, RequestCode
from flintmq.format.wire.command import Command, encode_command
from flintmq.model.message_queue import MessageQueue
from flintmq.remoting import EncodedRequest

GROUP: Final = "senders"
numbers = st.integers(0, 3)
envelopes = st.builds(
    Envelope,
    topic=st.sampled_from(["a", "b"]),
    code=st.just(RequestCode.SEND_MESSAGE_V2),
    body=st.just(b"x"),
    properties=st.text(max_size=8),
    sys_flag=numbers,
    flag=st.integers(-1, 1),
    message_id=st.just("id"),
    born_timestamp=st.integers(0, 1 << 62),
    is_batch=st.booleans(),
    reconsume_times=numbers,
    max_reconsume_times=st.none() | numbers,
)
queues = st.builds(
    MessageQueue, st.sampled_from(["a", "b"]), st.sampled_from(["broker-a", "broker-b"]), numbers
)


@given(st.lists(st.tuples(envelopes, queues), min_size=1, max_size=20))
def test_a_known_header_is_the_one_that_would_be_made(
    sends: list[tuple[Envelope, MessageQueue]],
) -> None:
    known = KnownSends(GROUP)
    for envelope, queue in sends:
        made = envelope.header(GROUP, queue).encode()
        # The order counts too: it is that of the bytes on the wire.
        assert list(known.header(envelope, queue).encode().items()) == list(made.items())


@given(
    sends=st.lists(st.tuples(envelopes, queues), min_size=1, max_size=20),
    group=st.sampled_from([GROUP, "tenant%senders", '"opaque":0,']),
)
def test_a_known_request_is_the_one_that_would_be_made(
    sends: list[tuple[Envelope, MessageQueue]], group: str
) -> None:
    def prepare(command: Command) -> None:
        command.language = LanguageCode.PYTHON

    known = KnownSends(group, prepare)
    for opaque, (envelope, queue) in enumerate(sends):
        made = Command(
            code=envelope.code,
            opaque=opaque,
            ext_fields=envelope.header(group, queue).encode(),
            body=envelope.body,
        )
        prepare(made)
        request = known.request(envelope, queue, opaque)
        assert request == EncodedRequest(envelope.code, opaque, encode_command(made))
