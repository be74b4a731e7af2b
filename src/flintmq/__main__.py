"""``python -m flintmq`` is ``flintmq``."""

from flintmq.cli.main import main

main()
