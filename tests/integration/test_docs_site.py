"""The documentation site is made without a warning: links, anchors and docstrings are sound."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

PROJECT: Final = Path(__file__).parents[2]
TIMEOUT_S: Final = 300


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    return subprocess.run(
        [*command, "-c", str(PROJECT / "docs"), str(source), str(target)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_the_site_is_made_without_a_warning(tmp_path: Path) -> None:
    done = build(PROJECT / "docs", tmp_path / "site")
    assert (done.returncode, done.stderr) == (0, "")
    client = (tmp_path / "site" / "client.html").read_text()
    assert "flintmq" in client
    api = (tmp_path / "site" / "api.html").read_text()
    assert "send_in_transaction" in api
    assert (tmp_path / "site" / "search.html").exists()


@pytest.mark.parametrize("link", ["nowhere.md", "other.md#not-there"])
def test_a_link_that_leads_nowhere_is_an_error(tmp_path: Path, link: str) -> None:
    source = tmp_path / "docs"
    source.mkdir()
    (source / "index.md").write_text(f"# Title\n\n[text]({link})\n\n```{{toctree}}\nother\n```\n")
    (source / "other.md").write_text("# Other\n")
    done = build(source, tmp_path / "site")
    assert done.returncode == 1
    assert "xref_missing" in done.stderr
