"""Who else may write to a home: refused; who else may read: closed. See resources/permissions.py."""

from __future__ import annotations

import gc
import os
import shutil
import stat
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kpipe.errors import KpipeError
from resources import permissions
from resources.home import Home
from resources.permissions import Trust

ALICE, CREW = 4211, 4212  # a user and a group that this machine does not have
root = pytest.mark.skipif(os.geteuid() != 0, reason="files of other users need root")


@pytest.fixture(autouse=True)
def nobody_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KPIPE_HOME_WRITERS", raising=False)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with a definition, as kpipe makes it, but that others may enter."""
    made = Home.at(tmp_path / "home").make()
    (made.pipelines / "orders.yaml").write_text("type: none\n")
    (made.state / "orders.json").write_text("{}")
    made.path.chmod(0o755)
    for folder in (made.pipelines, made.state, made.data):
        folder.chmod(0o755)
    return made


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def refused(opened: Callable[[], object]) -> str:
    with pytest.raises(KpipeError) as caught:
        opened()
    return f"{caught.value}"


# -- read --------------------------------------------------------------------------------------------------------------------


def test_a_home_that_others_may_read_is_closed(home: Home) -> None:
    home.make()
    assert mode(home.path) == 0o700
    assert {mode(folder) for folder in (home.pipelines, home.state, home.data, home.staging, home.logs)} == {0o700}


def test_a_folder_that_holds_other_things_is_not_closed_but_kpipes_parts_of_it_are(home: Home) -> None:
    (home.path / "project.toml").write_text("")
    home.make()
    assert mode(home.path) == 0o755 and mode(home.pipelines) == mode(home.state) == 0o700


def test_looking_at_a_home_changes_nothing(home: Home) -> None:
    assert home.names() == ("orders",)
    assert mode(home.path) == 0o755


# -- written -----------------------------------------------------------------------------------------------------------------

PLACES = ["", "pipelines", "pipelines/orders.yaml", "state", "state/orders.json", "data", "dagster", "environment", "broker"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("bits", [0o002, 0o020])
def test_what_others_may_write_is_refused_and_stays_as_it_is(home: Home, place: str, bits: int) -> None:
    path = home.path / place
    if not path.exists():
        path.mkdir()
    if path.is_dir():
        (path / "file").write_text("")
    if bits == 0o020:
        if os.geteuid() != 0:
            pytest.skip("a group of others needs root")
        os.chown(path, -1, CREW)
    path.chmod((0o755 if path.is_dir() else 0o644) | bits)
    before = mode(path), mode(home.path)
    for _ in range(2):  # the second time, too: nothing was closed that would hide it
        error = refused(home.make)
    assert f"{path}: " in error and f"mode {mode(path):04o}" in error and f"chmod go-w {path}" in error
    assert (mode(path), mode(home.path)) == before
    path.chmod(0o700)
    home.make()


@pytest.mark.parametrize(
    "opened", [Home.names, lambda home: home.pipeline("orders"), Home.check, lambda home: home.seen("orders")]
)
def test_every_way_to_open_a_home_refuses(home: Home, opened: Callable[[Home], object]) -> None:
    home.pipelines.chmod(0o777)
    assert str(home.pipelines) in refused(lambda: opened(home))


def test_in_a_home_that_others_cannot_enter_their_rights_to_files_do_not_count(home: Home) -> None:
    (home.state / "orders.json").chmod(0o666)
    home.path.chmod(0o700)
    assert home.make().names() == ("orders",)


@pytest.mark.parametrize("shut", ["", "pipelines"])
def test_definitions_count_wherever_they_are(home: Home, shut: str) -> None:
    """Others may have opened them before the home was closed."""
    (home.path / shut).chmod(0o700)
    file = home.pipelines / "orders.yaml"
    file.chmod(0o666)
    for opened in (home.make, home.names, lambda: home.pipeline("orders")):
        assert f"{file}: every user may write to it" in refused(opened)
    file.chmod(0o644)
    assert home.make().names() == ("orders",)


@pytest.mark.parametrize("file", ["pipelines/orders.yaml", "state/orders.json"])
def test_a_file_with_a_second_name_is_reached_without_the_home(home: Home, tmp_path: Path, file: str) -> None:
    home.path.chmod(0o700)
    os.link(home.path / file, tmp_path / "elsewhere")
    home.check()
    (tmp_path / "elsewhere").chmod(0o666)
    assert f"{home.path / file}: every user may write to it" in refused(home.check)


@root
def test_a_file_of_another_user_in_a_closed_home(home: Home) -> None:
    home.path.chmod(0o700)
    os.chown(home.pipelines / "orders.yaml", ALICE, -1)
    assert f"belongs to user {ALICE}" in refused(home.names)


def test_an_empty_folder_is_closed_whoever_could_write_to_it(tmp_path: Path) -> None:
    tmp_path.joinpath("new").mkdir()
    tmp_path.joinpath("new").chmod(0o777)
    assert mode(Home.at(tmp_path / "new").make().path) == 0o700


@root
@pytest.mark.parametrize("place", ["", "pipelines", "pipelines/orders.yaml", "state/orders.json"])
def test_what_belongs_to_another_user_is_refused(home: Home, place: str) -> None:
    os.chown(home.path / place, ALICE, -1)
    error = refused(home.make)
    assert f"{home.path / place}: belongs to user {ALICE}" in error and "chown" in error


# -- the way to it -----------------------------------------------------------------------------------------------------------


def test_others_may_not_put_another_folder_in_the_place_of_the_home(home: Home) -> None:
    home.path.parent.chmod(0o777)
    assert f"{home.path.parent}: " in refused(home.make)
    home.path.parent.chmod(0o1777)  # as /tmp is: only owners rename
    home.make()
    home.path.parent.chmod(0o700)


def test_a_home_that_is_not_there_yet_is_not_made_where_others_would_take_its_place(tmp_path: Path) -> None:
    tmp_path.joinpath("open").mkdir()
    tmp_path.joinpath("open").chmod(0o777)
    assert str(tmp_path / "open") in refused(Home.at(tmp_path / "open" / "home").make)
    assert not (tmp_path / "open" / "home").exists()


@root
def test_a_link_of_another_user_in_a_sticky_folder(home: Home, tmp_path: Path) -> None:
    sticky = tmp_path / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    (sticky / "home").symlink_to(home.path)
    Home.at(sticky / "home").make()
    os.chown(sticky / "home", ALICE, -1, follow_symlinks=False)
    assert str(sticky / "home") in refused(Home.at(sticky / "home").make)


@pytest.mark.parametrize("part", ["pipelines", "pipelines/orders.yaml"])
def test_links_are_followed_out_of_a_closed_home(home: Home, tmp_path: Path, part: str) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (home.path / part).rename(shared / "elsewhere")
    (home.path / part).symlink_to(shared / "elsewhere")
    home.make()
    (shared / "elsewhere").chmod(0o777)
    assert str(shared / "elsewhere") in refused(home.make)
    (shared / "elsewhere").chmod(0o700)
    shared.chmod(0o777)
    assert f"{shared}: " in refused(home.names)


@root
def test_a_home_below_a_folder_of_another_user(home: Home) -> None:
    os.chown(home.path.parent, ALICE, -1)
    error = refused(home.make)
    os.chown(home.path.parent, 0, -1)
    assert f"{home.path}: " not in error and "set KPIPE_HOME" in error


def test_links_in_a_circle_end(home: Home) -> None:
    home.pipelines.joinpath("round.yaml").symlink_to("round.yaml")
    home.make()


# -- groups ------------------------------------------------------------------------------------------------------------------


def test_the_group_of_its_own_that_a_user_has_is_that_user() -> None:
    """As with umask 002: a Git checkout then has 0664."""
    trust = Trust(1000, "ada")
    members = {("ada", ()): True, ("ada", ("ada",)): True, ("ada", ("bob",)): False, ("staff", ()): False}
    assert {group: trust.own_group(5000, *group) for group in members} == members


def test_a_group_without_a_name_is_ones_own_if_it_has_the_users_number() -> None:
    """As in a container with `runAsUser: 10001` and `fsGroup: 10001` whose image has no such user."""
    assert Trust(10001, "").own_group(10001, "", ())
    assert not Trust(10001, "").own_group(10002, "", ())


def test_the_group_of_root_is_root_as_long_as_nobody_else_is_in_it() -> None:
    """Images for OpenShift: any user, group 0."""
    assert Trust(10001, "").own_group(0, "root", ())
    assert not Trust(10001, "").own_group(0, "root", ("bob",))


@root
def test_volumes_with_fs_group(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root's, 2775, of a group that the pod's user is in."""
    for path in (home.path, home.pipelines, home.pipelines / "orders.yaml"):
        os.chown(path, 0, CREW)
        path.chmod(0o2775 if path.is_dir() else 0o664)
    assert f"KPIPE_HOME_WRITERS=:{CREW}" in refused(home.make)
    monkeypatch.setenv("KPIPE_HOME_WRITERS", f":{CREW}")
    assert home.make().names() == ("orders",)
    assert mode(home.pipelines) == 0o2770, "the group that is trusted keeps its rights"


@root
def test_the_pod_of_the_guide_needs_no_setting(request: pytest.FixtureRequest) -> None:
    """Its user is 10001, fsGroup is the same; the volume is root's, and new."""
    above = Path(tempfile.mkdtemp(prefix="kpipe-volume-"))  # others cannot enter pytest's own folders
    request.addfinalizer(lambda: shutil.rmtree(above))
    above.chmod(0o711)
    volume = above / "volume"
    volume.mkdir()
    (volume / "lost+found").mkdir(mode=0o700)
    os.chown(volume, 0, 10001)
    volume.chmod(0o2775)
    process = os.fork()
    if process == 0:  # pragma: no cover
        try:
            gc.freeze()  # garbage of earlier tests would be collected here, without the threads that it needs
            os.setgroups([])
            os.setgid(10001)
            os.setuid(10001)
            Home.at(volume).make().make()
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(process, 0)[1] == 0
    assert mode(volume) == 0o2775 and mode(volume / "pipelines") & 0o777 == 0o700


@root
def test_acls_give_rights_that_the_mode_does_not_show(home: Home) -> None:
    entries = [(0x01, 7, -1), (0x02, 7, ALICE), (0x04, 5, -1), (0x10, 7, -1), (0x20, 5, -1)]  # acl(5), as xattr(7) holds it
    value = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(home.pipelines, "system.posix_acl_access", value)
    except OSError:
        pytest.skip("a file system without access control lists")
    assert "access control list" in refused(home.make)


# -- what is allowed -----------------------------------------------------------------------------------------------------------


@root
def test_a_mounted_home_of_another_user(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root in a container, the folder of a user outside."""
    for path in (home.path, *home.path.rglob("*")):
        os.chown(path, ALICE, -1)
    assert f"KPIPE_HOME_WRITERS={ALICE}" in refused(home.make)
    monkeypatch.setenv("KPIPE_HOME_WRITERS", str(ALICE))
    home.make()
    monkeypatch.setenv("KPIPE_HOME_WRITERS", str(ALICE + 1))
    refused(home.make)


@root
def test_the_owner_of_the_code_is_trusted(home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Root in a container, in a checkout of a user outside."""
    code = tmp_path / "permissions.py"
    code.touch()
    os.chown(code, ALICE, -1)
    monkeypatch.setattr(permissions, "__file__", str(code))
    for path in (home.path, *home.path.rglob("*")):
        os.chown(path, ALICE, -1)
    assert home.make().names() == ("orders",)
    os.chown(home.pipelines, ALICE + 1, -1)
    assert str(home.pipelines) in refused(home.make)


def test_everyone(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.pipelines.chmod(0o777)
    monkeypatch.setenv("KPIPE_HOME_WRITERS", "*")
    assert home.make().names() == ("orders",)
    assert mode(home.pipelines) == 0o777


@pytest.mark.parametrize("value", ["no-such-user-4211", ":no-such-group", "1:2:3", "-1", "*:*"])
def test_a_setting_that_names_nobody(home: Home, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("KPIPE_HOME_WRITERS", value)
    assert "KPIPE_HOME_WRITERS" in refused(home.make)


@pytest.fixture
def config_map(home: Home) -> Iterator[Path]:
    """Definitions as Kubernetes mounts them: 0777, links, read-only."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0777", "tmpfs", str(home.pipelines)], check=False).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    data = home.pipelines / "..2026_01_01"
    data.mkdir()
    data.chmod(0o2777)
    (data / "orders.yaml").write_text("type: none\n")
    (data / "orders.yaml").chmod(0o666)
    (home.pipelines / "..data").symlink_to(data.name)
    (home.pipelines / "orders.yaml").symlink_to("..data/orders.yaml")
    yield home.pipelines
    subprocess.run(["umount", str(home.pipelines)], check=True)


def test_what_is_mounted_read_only_nobody_can_write(home: Home, config_map: Path) -> None:
    assert str(config_map) in refused(home.make)
    subprocess.run(["mount", "-o", "remount,ro", str(config_map)], check=True)
    assert home.make().names() == ("orders",)
