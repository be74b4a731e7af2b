"""The names that boards for RocketMQ know: those of 5.x and those of the exporter for 4.x."""

from pathlib import Path
from typing import Final

from tests.kits.broker.broker_kit import consumer, site
from tests.kits.broker.scrape_kit import scrape

EXPORTER: Final = """
    broker_commitlog_diff broker_qps broker_tps consumer_message_size consumer_offset
    consumer_tps group_consume_total_offset group_consume_tps group_count group_diff
    group_dlqdiff group_get_latency_by_storetime group_retrydiff producer_count
    producer_message_size producer_offset producer_tps send_back_nums topic_dlq_offset
    topic_retry_offset
"""
"""Behind ``rocketmq_``; what only consumers know, ``client_*``, is not there."""

STATUS: Final = """
    commitlog_disk_ratio commitlog_maxoffset commitlog_minoffset commitlogdir_capacity_free
    commitlogdir_capacity_total consumequeue_disk_ratio dispatch_behind_bytes dispatch_maxbuffer
    earliest_message_timestamp getfound_tps10 getfound_tps60 getfound_tps600
    getmessage_entire_time_max getmiss_tps10 getmiss_tps60 getmiss_tps600 gettotal_tps10
    gettotal_tps60 gettotal_tps600 gettransfered_tps10 gettransfered_tps60 gettransfered_tps600
    msg_gettotal_today_now msg_gettotal_todaymorning msg_gettotal_yesterdaymorning
    msg_put_total_today_now msg_puttotal_todaymorning msg_puttotal_yesterdaymorning
    pagecache_lock_time_mills pmdt_0ms pmdt_0to10ms pmdt_100to200ms pmdt_10stomore pmdt_10to50ms
    pmdt_1to2s pmdt_200to500ms pmdt_2to3s pmdt_3to4s pmdt_4to5s pmdt_500to1s pmdt_50to100ms
    pmdt_5to10s pull_threadpoolqueue_capacity pull_threadpoolqueue_headwait_timemills
    pull_threadpoolqueue_size put_latency_99 put_latency_999 put_message_average_size
    put_message_size_total put_tps10 put_tps60 put_tps600 putmessage_entire_time_max
    putmessage_times_total query_threadpool_queue_capacity
    query_threadpoolqueue_headwait_timemills query_threadpoolqueue_size
    remain_howmanydata_toflush remain_transientstore_buffer_numbs send_threadpool_queue_size
    send_threadpoolqueue_capacity send_threadpoolqueue_headwait_timemills
    start_accept_sendrequest_time
"""
"""Behind ``rocketmq_brokeruntime_``."""

NATIVE: Final = """
    broker_permission commit_messages_total consumer_connections consumer_group_number
    consumer_inflight_messages consumer_lag_latency consumer_lag_messages
    consumer_queueing_latency consumer_ready_messages delay_message_latency half_messages
    message_size message_size_bucket message_size_count message_size_sum messages_in_total
    messages_out_total processor_watermark producer_connections rollback_messages_total
    rpc_latency rpc_latency_bucket rpc_latency_count rpc_latency_sum
    send_to_dlq_messages_total storage_dispatch_behind_bytes storage_flush_behind_bytes
    storage_message_reserve_time storage_size throughput_in_total throughput_out_total
    topic_number
"""


async def test_every_name_that_boards_know_is_there(tmp_path: Path) -> None:
    async with site(tmp_path, metricsExporterType="PROM", metricsPromExporterPort=0) as here:
        wire = await here.client()
        await wire.heartbeat(consumer=consumer("readers", "orders"))
        await wire.send("orders")
        await wire.pull("orders", consumer_group="readers")
        assert here.broker.metrics_address is not None
        scraped = await scrape(here.broker.metrics_address)
    known = {f"rocketmq_{name}" for name in (EXPORTER + NATIVE).split()}
    known |= {f"rocketmq_brokeruntime_{name}" for name in STATUS.split()}
    assert known - scraped.names == set()
    assert {name for name in scraped.names if name.startswith("rocketmq_")} - known == set()
    status = scraped.series("rocketmq_brokeruntime_commitlog_maxoffset")
    assert [dict(labels)["cluster"] for labels in status] == ["TestCluster"]
    assert next(iter(status.values())) > 0
    (rate,) = scraped.series("rocketmq_group_consume_tps", group="readers", topic="orders")
    assert dict(rate)["broker"] == "broker-a"
