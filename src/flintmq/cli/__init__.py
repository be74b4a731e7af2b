"""The ``flintmq`` command: arguments, logging, progress, exit codes."""
