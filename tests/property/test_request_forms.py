"""Requests made from a text with gaps, against those encoded field by field."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from flintmq.client.request_forms import RequestForm
from flintmq.format.wire.codes import LanguageCode, RequestCode
from flintmq.format.wire.command import Command, encode_command
from flintmq.format.wire.headers.pull import PullMessageRequest
from flintmq.remoting import EncodedRequest

offsets = st.integers(0, (1 << 63) - 1)
names = st.text(max_size=12) | st.sampled_from(['"queueOffset":""', '"opaque":0,', "100%d"])
VARYING: Final = ("queueOffset", "commitOffset")


def prepare(command: Command) -> None:
    command.language = LanguageCode.PYTHON
    command.ext_fields = command.ext_fields | {"ReqT": "0"}


@given(
    group=names,
    topic=names,
    expression=st.none() | names,
    pulls=st.lists(st.tuples(offsets, offsets, st.integers(0, 0x7FFFFFFF)), max_size=5),
)
def test_a_filled_form_is_the_request_that_would_be_made(
    group: str, topic: str, expression: str | None, pulls: list[tuple[int, int, int]]
) -> None:
    def header(offset: int, commit_offset: int) -> PullMessageRequest:
        return PullMessageRequest(
            consumer_group=group,
            topic=topic,
            queue_id=3,
            queue_offset=offset,
            max_msg_nums=32,
            sys_flag=2,
            commit_offset=commit_offset,
            suspend_timeout_millis=15_000,
            subscription=expression,
            sub_version=7,
            expression_type="TAG",
            broker_name="broker-a",
        )

    code = RequestCode.PULL_MESSAGE
    form = RequestForm.of(code, header(0, 0).encode(), prepare, numbers=VARYING)
    for offset, commit_offset, opaque in pulls:
        made = Command(
            code=code, opaque=opaque, ext_fields=header(offset, commit_offset).encode(), body=b"b"
        )
        prepare(made)
        filled = form.fill(opaque, offset, commit_offset, body=b"b")
        assert filled == EncodedRequest(code, opaque, encode_command(made))
