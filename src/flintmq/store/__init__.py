"""The files of one broker: map, append, index, flush, recover, expire."""
