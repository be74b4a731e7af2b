"""The client: producers and consumers for any RocketMQ 4.x cluster, async first."""
