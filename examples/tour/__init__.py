"""The tour: a small shop on a FlintMQ cluster, and everything that can be done with its data."""
