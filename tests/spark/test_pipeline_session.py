"""What a job is started with: Java, settings, log files, the package for the executors."""

import io
import os
import socket
import socketserver
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from flintmq.spark.runtime import spark_session
from flintmq.spark.runtime.failures import REASON_LENGTH_MAX, reason_of
from flintmq.spark.runtime.java_runtime import JavaRuntimeError, require_java
from flintmq.spark.runtime.session_settings import SessionError, SessionSettings, is_local
from flintmq.spark.runtime.shipping import package_zip, zip_content
from flintmq.spark.runtime.spark_session import job_session, limit_answers, log_errors
from tests.kits.spark.light_spark import light_java


def fake_java(directory: Path, version: str) -> str:
    path = directory / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


# -- Java -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("manager", "command"),
    [
        ("apt-get", "sudo apt-get install openjdk-17-jre-headless"),
        ("dnf", "sudo dnf install java-17-openjdk-headless"),
        ("brew", "brew install openjdk@17"),
        (None, "https://adoptium.net"),
    ],
)
def test_without_java_one_line_tells_how_to_get_it(manager: str | None, command: str) -> None:
    with pytest.raises(JavaRuntimeError) as caught:
        require_java({}, which=lambda name: "/usr/bin/x" if name == manager else None)
    assert command in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11;"),
        ('java version "1.8.0_292"', "is Java 8;"),
        ("what?", "not a Java that tells its version;"),
    ],
)
def test_a_java_that_is_too_old_is_named(tmp_path: Path, answer: str, words: str) -> None:
    java = fake_java(tmp_path, answer)
    with pytest.raises(JavaRuntimeError) as caught:
        require_java({"JAVA_HOME": str(tmp_path)})
    assert f"{java} {'is' if words.startswith('not') else ''}".strip() in str(caught.value)
    assert words in str(caught.value)


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    java = fake_java(tmp_path, 'openjdk version "21.0.1" 2023-10-17')
    assert require_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"}) == Path(java)
    with pytest.raises(JavaRuntimeError, match="no bin/java in it"):
        require_java({"JAVA_HOME": str(tmp_path / "other")})


# -- settings ---------------------------------------------------------------------------------


def test_a_local_job_keeps_to_this_machine() -> None:
    settings = SessionSettings(parallelism=3)
    assert settings.spark_master == "local[3]"
    conf = settings.spark_conf()
    assert conf["spark.driver.bindAddress"] == conf["spark.driver.host"] == "127.0.0.1"
    assert conf["spark.sql.shuffle.partitions"] == "3"
    assert conf["spark.ui.enabled"] == "false"
    assert conf["spark.sql.session.timeZone"] == "UTC"


def test_a_cluster_decides_for_itself_and_the_user_for_all() -> None:
    settings = SessionSettings(master="spark://h:7077", conf={"spark.ui.enabled": "true"})
    assert settings.spark_master == "spark://h:7077"
    conf = settings.spark_conf()
    assert "spark.driver.host" not in conf
    assert "spark.sql.shuffle.partitions" not in conf
    assert conf["spark.ui.enabled"] == "true"


def test_java_starts_lighter_where_it_only_hands_out_tasks() -> None:
    options = "spark.driver.extraJavaOptions"
    assert options not in SessionSettings().spark_conf()
    assert "TieredStopAtLevel=1" in SessionSettings().task_conf()[options]
    assert SessionSettings(conf={options: "-Dmine=1"}).task_conf()[options] == "-Dmine=1"


def test_masters_are_told_apart() -> None:
    assert is_local("local")
    assert is_local("local[*]")
    assert not is_local("local-cluster[2,1,1024]")
    assert not is_local("spark://localhost:7077")
    assert not is_local(None)


def test_wrong_settings_are_refused(spark: SparkSession) -> None:
    with pytest.raises(SessionError, match="parallelism is 1 to"):
        SessionSettings(parallelism=0)
    with (
        pytest.raises(SessionError, match="this process has a Spark session"),
        job_session(SessionSettings()),
    ):
        pytest.fail("there is one session in a process")


PROGRAM = """
import os, sys
from pathlib import Path
from flintmq.spark.runtime.session_settings import SessionSettings
from flintmq.spark.runtime.spark_session import job_session

settings = SessionSettings(parallelism=1, conf={"spark.driver.extraJavaOptions": sys.argv[1]})
with job_session(settings) as spark:
    logs = list((Path(os.environ["XDG_STATE_HOME"]) / "flintmq").iterdir())
    assert len(logs) == 1, logs
    print(spark.range(5).selectExpr("sum(id)").first()[0], logs[0].stat().st_size > 0)
"""


DEAF_JAVA = """
    java = spark.sparkContext._gateway
    java.shutdown()
    assert java.proc.poll() is None
print(java.proc.poll() is not None)
"""


@pytest.mark.parametrize(
    ("ending", "said"),
    [("", "10 True\n"), (DEAF_JAVA, "10 True\nTrue\n")],
    ids=["a good end", "Java does not answer"],
)
def test_sparks_noise_goes_into_a_file_that_a_good_end_removes(
    tmp_path: Path, ending: str, said: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + ending, light_java()],
        env=os.environ | {"XDG_STATE_HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == (said, "", 0)
    assert [*(tmp_path / "flintmq").iterdir()] == []
    assert [path.name for path in tmp_path.iterdir()] == ["flintmq"]


def test_a_java_that_accepts_and_never_answers_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spark_session, "ANSWER_SECONDS_MAX", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        known: Any = JavaParameters(port=mute.getsockname()[1], auth_token="secret")
        java: Any = ClientServer(known, PythonParameters(eager_load=False))
        limit_answers(java)
        with pytest.raises(Py4JError):
            java.jvm.java.lang.System.exit(0)
        java.shutdown_callback_server()


# -- reasons ----------------------------------------------------------------------------------

TRACEBACK = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/x/worker.py", line 1, in read
flintmq.spark.errors.CorruptLogError: /d/commitlog/0: damaged from 3 to 9: no record
SQLSTATE: 38000
"""


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PySparkException(TRACEBACK), "/d/commitlog/0: damaged from 3 to 9: no record"),
        (
            PySparkException("Traceback (most recent call last):\n x\nValueError: no\n"),
            "ValueError: no",
        ),
        (
            PySparkException(
                "\n[PARSE_SYNTAX_ERROR] Syntax error. SQLSTATE: 42601 (line 1, pos 0)"
            ),
            "Syntax error. (line 1, pos 0)",
        ),
        (ValueError(""), "ValueError('')"),
    ],
)
def test_the_reason_of_an_error_is_one_line(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason


def test_an_error_of_a_java_that_has_ended_has_a_reason() -> None:
    class UnansweredError(Exception):
        def __str__(self) -> str:
            raise ConnectionRefusedError(111, "Connection refused")

    expected = "UnansweredError: [Errno 111] Connection refused"
    assert reason_of(UnansweredError()) == expected


def test_a_reason_is_bounded() -> None:
    assert len(reason_of(ValueError("x" * 10_000))) == REASON_LENGTH_MAX + 1


# -- the package ------------------------------------------------------------------------------


def test_the_zip_holds_this_package_and_nothing_else() -> None:
    with zipfile.ZipFile(io.BytesIO(zip_content())) as archive:
        names = archive.namelist()
        assert (
            archive.read("flintmq/__init__.py")
            == Path(sys.modules["flintmq"].__file__ or "").read_bytes()
        )
    assert {name.partition("/")[0] for name in names} == {"flintmq", "pyspark_flintmq"}
    assert {Path(name).suffix for name in names} == {".py", ".typed"}
    assert "flintmq/spark/source.py" in names


def test_the_zip_is_the_same_each_time_and_is_used_again(tmp_path: Path) -> None:
    assert zip_content() == zip_content()
    first = package_zip(tmp_path)
    before = first.stat()
    assert package_zip(tmp_path) == first
    assert first.stat().st_mtime_ns == before.st_mtime_ns
    first.write_bytes(b"damaged")
    assert package_zip(tmp_path).read_bytes() == zip_content()
    assert [*tmp_path.iterdir()] == [first]


def test_the_zip_is_in_a_directory_that_only_we_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ours = package_zip()
    assert stat.S_IMODE(ours.parent.stat().st_mode) == 0o700
    ours.parent.chmod(0o777)
    assert package_zip().parent != ours.parent


def test_the_zip_runs_where_the_package_is_not_installed(tmp_path: Path) -> None:
    package = package_zip(tmp_path)
    program = (
        f"import sys; sys.path.insert(0, {str(package)!r}); import flintmq, pyspark_flintmq; "
        "print(flintmq.__file__, pyspark_flintmq.DefaultSource.name())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{package}/flintmq/__init__.py flintmq\n"


# -- errors of PySpark's own server ------------------------------------------------------------


class FailingHandler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        raise EOFError("Java is gone")


def test_errors_of_a_server_go_into_the_log_and_not_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log_file = tmp_path / "spark.log"
    with socketserver.TCPServer(("127.0.0.1", 0), FailingHandler) as server:
        log_errors(server, log_file)
        with socket.create_connection(("127.0.0.1", server.server_address[1])):
            server.handle_request()
    assert "EOFError: Java is gone" in log_file.read_text()
    assert capsys.readouterr() == ("", "")
