"""The wheel in environments of its own: the base alone, and the demo's extras in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from resources.dev_broker.kafka_jars import jars_folder
from resources.extras import LIBRARIES, install_hint
from tests.wheel_environment import build_wheel, install

pytestmark = pytest.mark.slow

_DEFINITION = """\
type: kpipe_assets.KafkaPipeline
attributes:
  name: orders
  source: {brokers: "127.0.0.1:1", topic: orders}
  into: {type: postgres, database: "postgresql://user@localhost/shop", table: orders}
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment without any extra."""
    return install(wheel, tmp_path_factory.mktemp("base") / "environment")


def run(commands: Path, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with no variable that leads back to the checkout."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME", "LANG", "TMPDIR") if name in os.environ}
    return subprocess.run(
        [str(commands / words[0]), *words[1:]], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )


def test_the_base_environment_is_apart_from_this_one(base: Path, tmp_path: Path) -> None:
    code = "import kpipe, sys; print(kpipe.__file__); print(*sys.path)"
    done = run(base, "python", "-c", code, folder=tmp_path)
    assert done.stdout.startswith(str(base.parent)), done.stdout + done.stderr
    assert str(Path(sys.prefix)) not in done.stdout
    missing = [name for modules in LIBRARIES.values() for name in modules]
    code = f"from importlib.util import find_spec; print(*[name for name in {missing!r} if find_spec(name)])"
    assert run(base, "python", "-c", code, folder=tmp_path).stdout.strip() == ""


def test_the_base_shows_help_version_and_status(base: Path, tmp_path: Path) -> None:
    for words in (["--help"], ["--version"], ["status"], ["run", "--help"], ["ui", "--help"], ["demo", "--help"]):
        done = run(base, "kpipe", *words, folder=tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), words
        assert done.stdout


def test_the_base_has_the_compiled_part_and_a_code_location(base: Path, tmp_path: Path) -> None:
    code = (
        "from resources.native import library; assert library() is not None; import kpipe_assets.definitions as d; print(d.defs)"
    )
    done = run(base, "python", "-c", code, folder=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "extra"),
    [(["verify", "orders"], "postgres"), (["run", "orders"], "spark"), (["ui"], "ui")],
    ids=lambda value: value,
)
def test_the_base_names_the_extra_that_is_missing(base: Path, tmp_path: Path, words: list[str], extra: str) -> None:
    definitions = tmp_path / ".kpipe" / "pipelines"
    definitions.mkdir(parents=True, mode=0o700)
    (tmp_path / ".kpipe").chmod(0o700)
    (definitions / "orders.yaml").write_text(_DEFINITION, encoding="utf-8")
    done = run(base, "kpipe", *words, folder=tmp_path)
    assert done.returncode == 2, done.stderr
    assert install_hint(extra) in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.chaos
@pytest.mark.spark
@pytest.mark.broker
def test_the_demo_runs_from_the_wheel_in_an_empty_folder(wheel: Path, java: object, tmp_path: Path) -> None:
    commands = install(wheel, tmp_path / "environment", "demo")
    share = commands.parent / "share"  # what `kpipe broker install` would fetch
    share.mkdir(exist_ok=True)
    (share / jars_folder().name).symlink_to(jars_folder())
    folder = tmp_path / "empty"
    folder.mkdir()
    try:
        done = run(commands, "kpipe", "demo", "--records", "4000", folder=folder)
        assert done.returncode == 0, done.stdout + done.stderr
        for words in ("Apache Kafka", "4,000 records on 4 partitions", "caught up", "proven: "):
            assert words in done.stdout, done.stdout
        assert f"   {commands}/kpipe status\n" in done.stdout  # as it can be entered in this folder
        assert [path.name for path in folder.iterdir()] == [".kpipe"]
    finally:
        run(commands, "kpipe", "broker", "stop", folder=folder)
