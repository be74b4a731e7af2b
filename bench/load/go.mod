module flintmq/bench/load

go 1.21
