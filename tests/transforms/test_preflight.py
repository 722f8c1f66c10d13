"""Preflight: each mistake has its own message, and nothing leads out of the folder or the archive (fault D1)."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kpipe.errors import InvalidPipeline, TransformFailed
from transforms import Program, Resolved, keep, preflight, resolve, run

Script = Callable[..., str]
SH = "#!/bin/sh\ncat\n"


def refused(base: Path, program: str, archive: str | None = None) -> InvalidPipeline:
    with pytest.raises(InvalidPipeline) as caught:
        resolve(program, archive, (), base)
    assert caught.value.hint
    return caught.value


def test_a_good_script_is_found_hashed_and_can_run(script: Script, tmp_path: Path) -> None:
    path = script(SH)
    found = resolve("program", args=["-x"], base_dir=tmp_path)
    assert found.sha256 == hashlib.sha256(SH.encode()).hexdigest()
    assert found.version == found.sha256[:12]
    assert (str(found.file), found.args) == (path, ("-x",))
    assert b"".join(run(Program((path,)), [b"1\n"])) == b"1\n"


def test_binaries_and_env_pass(script: Script, tmp_path: Path) -> None:
    assert resolve("/bin/cat").member is None
    script("#!/usr/bin/env -S python3 -u\n")
    assert resolve(Path("program"), base_dir=tmp_path).args == ()


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        (SH, 0o644, "not executable"),
        (SH, 0o757, "changed by every user"),
        ("cat\n", 0o755, "neither a binary"),
        ("", 0o755, "neither a binary"),
        ("#!\n", 0o755, "empty #! line"),
        ("#!/no/such/sh\ncat\n", 0o755, "/no/such/sh"),
        ("#!/usr/bin/env no-such-python\n", 0o755, "no-such-python"),
        ("#!/usr/bin/env\n", 0o755, "needs a program from env"),
        ("#!/bin/sh\r\ncat\r\n", 0o755, "Windows line ends"),
        ("\ufeff#!/bin/sh\n", 0o755, "byte order mark"),
    ],
)
def test_what_is_wrong_with_a_file(script: Script, tmp_path: Path, text: str, mode: int, said: str) -> None:
    script(text, mode=mode)
    assert said in refused(tmp_path, "program").what


def test_the_hint_for_a_missing_bit_can_be_typed(script: Script, tmp_path: Path) -> None:
    path = script(SH, mode=0o644)
    assert refused(tmp_path, "program").hint == f"chmod +x {path}"


def test_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    assert "does not exist" in refused(tmp_path, "none").what
    assert "write /" in refused(tmp_path, "cat").hint
    assert "is a folder" in refused(tmp_path, "folder").what
    assert "not a regular file" in refused(tmp_path, "fifo").what
    assert "loop" in refused(tmp_path, "loop").what
    assert "empty" in refused(tmp_path, "").what
    assert "NUL" in refused(tmp_path, "a\0b").what


def test_a_relative_path_stays_below_its_folder_links_included(script: Script, tmp_path: Path) -> None:
    script(SH)
    base = tmp_path / "base"
    base.mkdir()
    (base / "link").symlink_to(tmp_path / "program")
    (base / "inner").symlink_to("link")
    for path in ("../program", "link", "inner", "../../../../../../../../bin/sh"):
        assert "leads out of" in refused(base, path).what
    assert resolve(tmp_path / "program", base_dir=base).member is None  # absolute: it is meant


def swapping(monkeypatch: pytest.MonkeyPatch, name: str, swap: Callable[[], object]) -> None:
    """The world changes when the driver is about to call that."""
    real = getattr(preflight, name)

    def first(*args: object) -> object:
        swap()
        return real(*args)

    monkeypatch.setattr(preflight, name, first)


def test_all_is_asked_of_one_file_though_another_takes_its_name(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(SH)
    script("evil", name="other")
    swapping(monkeypatch, "_check_mode", lambda: os.replace(tmp_path / "other", tmp_path / "program"))
    found = resolve("program", base_dir=tmp_path)
    assert (tmp_path / "program").read_text() == "evil"
    assert found.sha256 == hashlib.sha256(SH.encode()).hexdigest()  # of what was looked at: what is there now will not be run
    with pytest.raises(TransformFailed, match="not the checked file"):
        keep(found.file, found.sha256, tmp_path / "programs")


@pytest.mark.parametrize("what", ["program", "folder"])
def test_a_link_that_takes_its_place_is_not_followed(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    outside, base = tmp_path / "outside", tmp_path / "base"
    outside.mkdir()
    (base / "folder").mkdir(parents=True)
    for folder in (outside, base / "folder"):
        (folder / "program").write_text(SH)
        (folder / "program").chmod(0o755)

    def swap() -> None:
        place, target = (base / "folder", outside) if what == "folder" else (base / "folder/program", outside / "program")
        place.rename(tmp_path / "away")
        place.symlink_to(target)

    real = os.open

    def late(path: object, *args: object) -> int:
        if str(path) == str(base / "folder/program"):
            swap()
        return real(path, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", late)
    with pytest.raises(InvalidPipeline, match="changed during its check"):
        resolve("folder/program", base_dir=base)


def test_a_program_that_is_changed_moved_or_removed_later_is_run_as_it_was_checked(script: Script, tmp_path: Path) -> None:
    path = Path(script("#!/bin/sh\necho checked\n"))
    found, programs = resolve(path), tmp_path / "programs"
    copy = keep(found.file, found.sha256, programs)
    path.write_text("#!/bin/sh\necho evil\n")
    for _ in ("changed", "moved"):
        assert keep(found.file, found.sha256, programs) == copy
        assert b"".join(run(Program((str(copy),)), [])) == b"checked\n"
        path.unlink(missing_ok=True)
    assert copy.name == "program" and stat.S_IMODE(copy.stat().st_mode) == 0o500


def test_what_arrives_changed_on_a_worker_is_not_run(script: Script, tmp_path: Path) -> None:
    path = Path(script(SH))
    sha256 = resolve(path).sha256
    path.write_text("#!/bin/sh\nevil\n")
    with pytest.raises(TransformFailed, match="not the checked file"):
        keep(path, sha256, tmp_path / "programs", where="t/0 [1,2)")
    with pytest.raises(TransformFailed, match="No such file"):
        keep(tmp_path / "none", sha256, tmp_path / "programs")
    assert list((tmp_path / "programs").iterdir()) == []
    path.write_text(SH)
    assert keep(path, sha256, tmp_path / "programs").read_text() == SH


def test_a_copy_that_is_tampered_with_between_two_batches_is_noticed_and_made_again(script: Script, tmp_path: Path) -> None:
    found, programs = resolve(script(SH)), tmp_path / "programs"
    copy = keep(found.file, found.sha256, programs)
    times = copy.stat()
    for tamper in (copy.write_text, lambda text: (copy.unlink(), copy.write_text(text))):
        copy.chmod(0o700)
        tamper("#!/bin/sh\nrm\n")  # the same length
        os.utime(copy, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert keep(found.file, found.sha256, programs) == copy
        assert copy.read_text() == SH
    found.file.unlink()
    copy.chmod(0o700)
    copy.write_text("#!/bin/sh\nrm\n")
    with pytest.raises(TransformFailed, match="No such file"):
        keep(found.file, found.sha256, programs)


@pytest.mark.parametrize("how", ["link", "others"])
def test_copies_are_kept_where_nobody_else_can_write(script: Script, tmp_path: Path, how: str) -> None:
    found, programs = resolve(script(SH)), tmp_path / "programs"
    if how == "link":
        (tmp_path / "elsewhere").mkdir()
        programs.symlink_to(tmp_path / "elsewhere")
    else:
        programs.mkdir()
        programs.chmod(0o777)
    with pytest.raises(TransformFailed, match="other users can write it"):
        keep(found.file, found.sha256, programs)


def tar(path: Path, *members: tuple[str, bytes | str, int], kind: bytes = tarfile.REGTYPE) -> str:
    with tarfile.open(path, "w:gz") as archive:
        for name, content, mode in members:
            info = tarfile.TarInfo(name)
            info.mode = mode
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                archive.addfile(info)
            elif kind != tarfile.REGTYPE:
                info.type = kind
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return path.name


def zipped(path: Path, *members: tuple[str, bytes, int]) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content, mode in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, content)
    return path.name


def kept(found: Resolved, folder: Path) -> Path:
    return keep(found.file, found.sha256, folder / "programs", archive=True)


def test_an_archive_that_was_swapped_is_not_unpacked(tmp_path: Path) -> None:
    tar(tmp_path / "p.tgz", ("run", *PROGRAM))
    found = resolve("run", "p.tgz", (), tmp_path)
    tar(tmp_path / "p.tgz", ("run", b"#!/bin/sh\necho evil\n", 0o755))
    with pytest.raises(TransformFailed, match="not the checked file"):
        kept(found, tmp_path)


PROGRAM = (b"#!/bin/sh\n. ${0%/*}/../lib/words\necho $word\n", 0o755)
WORDS = (b"word=hello\n", 0o644)


@pytest.mark.parametrize("name", ["p.tar.gz", "p.tgz", "p.zip"])
def test_a_program_in_an_archive_runs_from_the_unpacked_folder(tmp_path: Path, name: str) -> None:
    pack = zipped if name.endswith("zip") else tar
    pack(tmp_path / name, ("bin/run", *PROGRAM), ("lib/words", *WORDS), ("bin/evil", b"x", 0o6777))
    found = resolve("bin/run", name, ["a"], tmp_path)
    folder = kept(found, tmp_path)
    assert kept(found, tmp_path) == folder == tmp_path / "programs" / found.sha256
    assert b"".join(run(Program((str(folder / "bin/run"),)), [])) == b"hello\n"
    assert stat.S_IMODE((folder / "bin/evil").stat().st_mode) == 0o755  # neither set-uid nor writable for others
    assert [path.name for path in (tmp_path / "programs").iterdir()] == [found.sha256]


def test_links_inside_an_archive_work(tmp_path: Path) -> None:
    tar(tmp_path / "p.tgz", ("bin/real", b"#!/bin/sh\necho ok\n", 0o755), ("etc/link", "../bin/real", 0o777))
    found = resolve("bin/real", "p.tgz", (), tmp_path)
    folder = kept(found, tmp_path)
    assert b"".join(run(Program((str(folder / "etc/link"),)), [])) == b"ok\n"


@pytest.mark.parametrize(
    "member",
    [
        ("/etc/evil", b"x", 0o755),
        ("../evil", b"x", 0o755),
        ("a/../../evil", b"x", 0o755),
        ("link", "/etc/passwd", 0o777),
        ("a/link", "../../etc/passwd", 0o777),
    ],
)
def test_an_archive_that_leads_outside_is_refused(tmp_path: Path, member: tuple[str, bytes | str, int]) -> None:
    tar(tmp_path / "p.tgz", ("run", *PROGRAM), member)
    assert "leads outside" in refused(tmp_path, "run", "p.tgz").what
    if isinstance(member[1], bytes):
        zipped(tmp_path / "p.zip", ("run", *PROGRAM), member)  # type: ignore[arg-type]
        assert "leads outside" in refused(tmp_path, "run", "p.zip").what


def test_an_archive_that_writes_through_its_own_link_is_refused(tmp_path: Path) -> None:
    tar(tmp_path / "p.tgz", ("run", *PROGRAM), ("a", "b", 0o777), ("a/evil", b"x", 0o755))
    assert "lies below a link" in refused(tmp_path, "run", "p.tgz").what
    tar(tmp_path / "p.tgz", ("run", *PROGRAM), ("./run", b"x", 0o755))
    assert "is duplicated" in refused(tmp_path, "run", "p.tgz").what
    tar(tmp_path / "p.tgz", ("dev", b"", 0o666), kind=tarfile.CHRTYPE)
    assert "device" in refused(tmp_path, "run", "p.tgz").what


def test_what_is_wrong_with_an_archive(tmp_path: Path, script: Script) -> None:
    tar(tmp_path / "p.tgz", ("run", *PROGRAM), ("data", b"x", 0o644), ("dir/a", b"x", 0o755))
    assert "programs in it: dir/a, run" in refused(tmp_path, "walk", "p.tgz").hint
    assert "not executable" in refused(tmp_path, "data", "p.tgz").what
    assert "leads outside" in refused(tmp_path, "../run", "p.tgz").what
    assert "is an archive" in refused(tmp_path, "p.tgz").what
    (tmp_path / "bad.zip").write_bytes(b"no zip")
    (tmp_path / "bad.tgz").write_bytes(b"no tar")
    assert "cannot be read as an archive" in refused(tmp_path, "run", "bad.zip").what
    assert "cannot be read as an archive" in refused(tmp_path, "run", "bad.tgz").what
    script(SH, name="plain.tar")
    assert "is not an archive" in refused(tmp_path, "run", "plain.tar").what
