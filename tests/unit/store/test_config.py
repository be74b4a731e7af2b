import dataclasses
import re
from pathlib import Path

import pytest

from flintmq.errors import FlintError
from flintmq.format.delay_levels import DelayLevels
from flintmq.settings import ConfigError, Owner, read_properties
from flintmq.store.config import (
    SETTINGS,
    BrokerRole,
    FlushMode,
    StoreConfig,
    unknown_keys,
)

ROOT = Path("store")


def config(**properties: object) -> StoreConfig:
    texts = {key: str(value) for key, value in properties.items()}
    return StoreConfig.from_properties(texts, root=ROOT)


def test_defaults_are_those_of_a_java_broker() -> None:
    settings = StoreConfig(root=ROOT)
    assert settings.commit_log_file_size == 1073741824
    assert settings.effective_consume_queue_file_size == 6_000_000
    assert settings.consume_queue_ext_file_size == 50331648
    assert settings.index_file_size == 420_000_040
    assert settings.flush_mode is FlushMode.ASYNC
    assert settings.broker_role is BrokerRole.ASYNC_MASTER
    assert settings.delete_when == (4,)
    assert DelayLevels.parse(settings.delay_levels).max_level == 18
    assert settings.effective_commit_log_paths == (ROOT / "commitlog",)


def test_settings_cannot_be_changed() -> None:
    settings = StoreConfig(root=ROOT)
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.flush_interval_ms = 1  # type: ignore[misc]  # the point of the test


def test_every_field_has_its_own_key() -> None:
    keys = [setting.key for setting in SETTINGS.values()]
    assert len(set(keys)) == len(keys)


def test_properties_survive_a_round_trip() -> None:
    settings = StoreConfig(
        root=ROOT,
        commit_log_paths=(Path("a"), Path("b")),
        read_only_commit_log_paths=(Path("b"), Path("old,log")),
        multi_path_splitter=":",
        flush_mode=FlushMode.SYNC,
        broker_role=BrokerRole.SLAVE,
        broker_id=3,
        delete_when=(4, 16),
        disk_warning_ratio=0.95,
        ha_master_address="127.0.0.1:10912",
        batch_push=True,
        refuse_rather_than_delete=True,
    )
    assert StoreConfig.from_properties(settings.to_properties(java_only=False)) == settings


def test_properties_are_printed_as_java_prints_them() -> None:
    properties = StoreConfig(root=ROOT, delete_when=(4, 16), warm_files=True).to_properties()
    assert properties["deleteWhen"] == "04;16"
    assert properties["warmMapedFileEnable"] == "true"
    assert properties["checkCRCOnRecover"] == "true"
    assert properties["flushDiskType"] == "ASYNC_FLUSH"
    assert properties["storePathRootDir"] == "store"
    assert properties["isEnableBatchPush"] == "false"
    # A Java broker prints no line for a member that is null.
    assert "storePathCommitLog" not in properties
    assert "haMasterAddress" not in properties
    own = {setting.key for setting in SETTINGS.values() if setting.owner is not Owner.STORE}
    assert not own & properties.keys()


def test_keys_of_others_are_left_alone() -> None:
    assert config(brokerName="broker-a", maxHashSlotNum=7).hash_slot_count == 7


def test_the_root_is_taken_from_the_call_then_the_file_then_the_home() -> None:
    written = {"storePathRootDir": "written"}
    assert StoreConfig.from_properties(written, root=ROOT).root == ROOT
    assert StoreConfig.from_properties(written).root == Path("written")
    assert StoreConfig.from_properties({}).root == Path.home() / "store"


def test_values_may_stand_between_spaces() -> None:
    assert config(flushDiskType=" SYNC_FLUSH ").flush_mode is FlushMode.SYNC
    assert config(fileReservedTime=" 48 ").file_reserved_hours == 48
    assert config(storePathCommitLog=" a , b ").commit_log_paths == (Path("a"), Path("b"))
    assert config(deleteWhen="04; 16;").delete_when == (4, 16)


def test_an_empty_address_is_none() -> None:
    assert config(haMasterAddress="").ha_master_address is None
    assert config(storePathCommitLog="").commit_log_paths == ()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mappedFileSizeCommitLog", "127"),
        ("mappedFileSizeCommitLog", "2147483648"),
        ("mappedFileSizeCommitLog", "1g"),
        ("mappedFileSizeCommitLog", "1_000_000"),
        ("mappedFileSizeCommitLog", ""),
        ("mappedFileSizeConsumeQueue", "0"),
        ("maxHashSlotNum", "0"),
        ("maxIndexNum", "1"),
        ("maxIndexNum", "200000000"),
        ("flushIntervalCommitLog", "0"),
        ("flushIntervalCommitLog", "-1"),
        ("accessMessageInMemoryMaxRatio", "101"),
        ("deleteWhen", "24"),
        ("deleteWhen", "four"),
        ("messageIndexEnable", "yes"),
        ("flushDiskType", "SYNC"),
        ("brokerRole", "slave"),
        ("messageDelayLevel", "1s  5s"),
        ("messageDelayLevel", "1s 5"),
        ("storePathCommitLog", "a,a"),
        ("enableDLegerCommitLog", "true"),
        ("rocketmq.broker.diskSpaceWarningLevelRatio", "90"),
        ("rocketmq.broker.diskSpaceWarningLevelRatio", "nan"),
        ("rocketmq.broker.diskSpaceCleanForciblyRatio", "0.99"),
    ],
)
def test_a_bad_value_names_the_key_the_value_and_what_is_allowed(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(key)}=.*: allowed is .+") as caught:
        config(**{key: value})
    assert isinstance(caught.value, FlintError)
    assert value in str(caught.value)


def test_a_commit_log_needs_a_directory_that_may_be_written() -> None:
    with pytest.raises(ConfigError, match=r"storePathCommitLog=a,b: .* writable"):
        config(storePathCommitLog="a,b", readOnlyCommitLogStorePaths="b,a")


@pytest.mark.parametrize(
    ("size", "effective"), [(1, 20), (20, 20), (21, 40), (1280, 1280), (1281, 1300)]
)
def test_a_consume_queue_file_holds_whole_units(size: int, effective: int) -> None:
    settings = StoreConfig(root=ROOT, consume_queue_file_size=size)
    assert settings.effective_consume_queue_file_size == effective


@pytest.mark.parametrize(("given", "used"), [(-5, 10), (9, 10), (10, 10), (95, 95), (96, 95)])
def test_the_disk_ratio_is_moved_into_its_range(given: int, used: int) -> None:
    assert config(diskMaxUsedSpaceRatio=given).disk_max_used_ratio == used


@pytest.mark.parametrize(
    ("flush_mode", "broker_role", "effective"),
    [
        (FlushMode.ASYNC, BrokerRole.ASYNC_MASTER, True),
        (FlushMode.ASYNC, BrokerRole.SYNC_MASTER, True),
        (FlushMode.ASYNC, BrokerRole.SLAVE, False),
        (FlushMode.SYNC, BrokerRole.ASYNC_MASTER, False),
    ],
)
def test_write_buffers_need_asynchronous_flush_and_a_master(
    flush_mode: FlushMode, broker_role: BrokerRole, effective: bool
) -> None:
    settings = StoreConfig(root=ROOT, flush_mode=flush_mode, broker_role=broker_role)
    assert not settings.transient_pool_effective
    enabled = dataclasses.replace(settings, transient_pool_enabled=True)
    assert enabled.transient_pool_effective is effective


def test_another_splitter_allows_commas_in_paths() -> None:
    properties = {
        "rocketmq.broker.multiPathSplitter": ":",
        "storePathCommitLog": "log,a:log,b",
    }
    settings = StoreConfig.from_properties(properties, root=ROOT)
    assert settings.commit_log_paths == (Path("log,a"), Path("log,b"))
    assert settings.to_properties()["storePathCommitLog"] == "log,a:log,b"


def test_unknown_keys_come_with_the_nearest_known_one() -> None:
    properties = {
        "flushDiskTyp": "SYNC_FLUSH",
        "filereservedtime": "48",
        "warmMappedFileEnable": "true",
        "isEnableBatchPush": "true",
        "brokerName": "broker-a",
        "brokerNmae": "broker-a",
        "zzz": "1",
        "deleteWhen": "04",
    }
    assert unknown_keys(properties, also_known=["brokerName"]) == {
        "flushDiskTyp": "flushDiskType",
        "filereservedtime": "fileReservedTime",
        "warmMappedFileEnable": "warmMapedFileEnable",
        "brokerNmae": "brokerName",
        "zzz": None,
    }


def test_a_properties_file_is_read_as_java_reads_it() -> None:
    text = "# comment\nfileReservedTime = 48\nbrokerName:caf\\u00e9\nstorePathRootDir=a\\\n  b\n"
    assert read_properties(text) == {
        "fileReservedTime": "48",
        "brokerName": "café",
        "storePathRootDir": "ab",
    }
    assert read_properties("brokerName=é".encode("latin-1")) == {"brokerName": "é"}


def test_a_malformed_properties_file_is_refused() -> None:
    with pytest.raises(ConfigError, match="properties file"):
        read_properties("brokerName=\\u00g0")
    with pytest.raises(ConfigError, match="properties file"):
        read_properties(b" " * (1 << 21))
