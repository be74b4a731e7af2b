"""``python manage.py consume_orders``: consume until SIGTERM or Ctrl-C comes."""

from django.core.management.base import BaseCommand, CommandParser
from django.db import close_old_connections

from flintmq import ConsumeFrom, PushConsumer, ReceivedMessage


class Command(BaseCommand):
    """Consumes the topic ``orders``."""

    help = "Consume orders until SIGTERM or SIGINT"

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the address of the name server; without it ``NAMESRV_ADDR`` counts."""
        parser.add_argument("--namesrv")

    def handle(self, *, namesrv: str | None, **_: object) -> None:
        """Consume, and return when what is being handled at the signal is done."""
        PushConsumer(
            namesrv=namesrv,
            group="django-orders",
            subscriptions={"orders": "*"},
            handler=self.handle_order,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ).run()
        self.stdout.write("stopped")

    def handle_order(self, message: ReceivedMessage) -> None:
        """Handle one order, in a thread of the consumer.

        A database closes connections that were idle for long; Django only notices between web
        requests.  So it is asked to look before and after each message.
        """
        close_old_connections()
        try:
            self.stdout.write(f"order {message.body.decode()}")
        finally:
            close_old_connections()
