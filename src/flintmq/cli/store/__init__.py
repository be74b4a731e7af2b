"""``flintmq store``: the offline tools as commands."""
