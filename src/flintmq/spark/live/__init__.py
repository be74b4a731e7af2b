"""Live topics as Spark tables, streams and sinks: a running cluster, through its brokers."""
