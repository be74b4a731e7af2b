#!/bin/sh
# The first hour of an operator: start servers, create a topic, send, look, reset a group, replay a
# dead letter, drain a broker and restart it.  Needs `flintmq` and `python` of one environment.
#
#   DATA=./tour NAMESRV_PORT=9876 BROKER_PORT=10911 sh tour.sh
set -eu

DATA=${DATA:-./tour-data}
NAMESRV_PORT=${NAMESRV_PORT:-9876}
BROKER_PORT=${BROKER_PORT:-10911}
export FLINTMQ_CONTEXT_FILE=$DATA/contexts.yml
mkdir -p "$DATA"

step() { printf '\n== %s\n' "$1"; }

start_namesrv() {
    flintmq namesrv --log-level error --set "listenPort=$NAMESRV_PORT" \
        --set "kvConfigPath=$DATA/namesrv/kvConfig.json" \
        --set "configStorePath=$DATA/namesrv/namesrv.properties" >"$DATA/namesrv.out" &
    NAMESRV_PID=$!
}

start_broker() {
    flintmq broker --log-level error -n "127.0.0.1:$NAMESRV_PORT" \
        --set "listenPort=$BROKER_PORT" --set brokerName=broker-a --set brokerIP1=127.0.0.1 \
        --set "storePathRootDir=$DATA/store" --set mappedFileSizeCommitLog=1048576 \
        --set maxHashSlotNum=1000 --set maxIndexNum=4000 >"$DATA/broker.out" &
    BROKER_PID=$!
}

stop_servers() { kill "$BROKER_PID" "$NAMESRV_PID" 2>/dev/null || true; }
trap stop_servers EXIT

# Waits until a command ends well; gives up after a minute.
wait_for() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 240 ] || { echo "gave up: $*" >&2; exit 1; }
        sleep 0.25
    done
}

step "Start a name server and a broker, and give the cluster a name"
start_namesrv
start_broker
flintmq context add tour -n "127.0.0.1:$NAMESRV_PORT" --use
wait_for flintmq admin brokerStatus -b broker-a
flintmq admin clusterList

step "Create a topic and a group; look at the change before it is made"
flintmq admin updateTopic -t orders -c DefaultCluster -r 2 -w 2 --dry-run
flintmq admin updateTopic -t orders -c DefaultCluster -r 2 -w 2 --yes
flintmq admin updateSubGroup -g billing -c DefaultCluster --yes
wait_for flintmq admin topicRoute -t orders

step "Send messages, and look at them"
flintmq admin sendMessage -t orders -p '{"order": 1}' -k order-1 -c paid
flintmq admin sendMessage -t orders -p '{"order": 2}' -k order-2 -c paid
flintmq admin topicStatus -t orders
flintmq admin queryMsgByKey -t orders -k order-2
flintmq admin printMsg -t orders

step "A consumer handles one message and gives up on the other"
python - "127.0.0.1:$NAMESRV_PORT" <<'PYTHON'
import sys

from flintmq import PullConsumer

with PullConsumer(namesrv=sys.argv[1], group="billing") as consumer:
    for queue in consumer.queues("orders"):
        result = consumer.pull(queue, consumer.begin_offset(queue))
        for message in result.messages:
            if b'"order": 2' in message.body:
                consumer.send_back(message, delay_level=-1)  # A dead letter at once.
        consumer.commit(queue, result.next_offset)
PYTHON
flintmq admin lag -g billing --max 0

step "Reset the group to the beginning, and to the end again"
flintmq admin resetOffsetByTime -g billing -t orders -s 1h --dry-run
flintmq admin resetOffsetByTime -g billing -t orders -s 1h --yes
flintmq admin consumerProgress -g billing
flintmq admin skipAccumulatedMessage -g billing -t orders --yes

step "Replay the dead letter"
wait_for flintmq admin dlq show -g billing
flintmq admin dlq list
flintmq admin dlq show -g billing
flintmq admin dlq replay -g billing --to-origin --rate 10 --dry-run
flintmq admin dlq replay -g billing --to-origin --rate 10 --yes
flintmq admin lag -g billing

step "Drain the broker, restart it, open it again"
flintmq admin wipeWritePerm -b broker-a --yes
flintmq admin topicRoute -t orders
kill "$BROKER_PID"
wait "$BROKER_PID" || true
start_broker
wait_for flintmq admin brokerStatus -b broker-a
flintmq admin addWritePerm -b broker-a --yes
flintmq admin sendMessage -t orders -p '{"order": 3}' -k order-3

step "Is everything well?"
flintmq admin doctor
