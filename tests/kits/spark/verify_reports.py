"""Verify reports of Spark and of the serial tool compared."""

from dataclasses import fields

from flintmq.offline import VerifyReport
from flintmq.spark.jobs.verify.parallel_verify import StoreReport


def assert_equal_reports(ours: StoreReport, serial: VerifyReport) -> None:
    for field in fields(serial):
        if field.name != "findings":
            assert getattr(ours, field.name) == getattr(serial, field.name), field.name
    assert ours.findings.counts == serial.findings.counts
    assert ours.findings.shown == serial.findings.shown
    assert sorted(map(str, ours.findings)) == sorted(map(str, serial.findings))
