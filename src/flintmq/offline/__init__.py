"""Store directories without a broker: stat, dump, verify, rebuild."""
