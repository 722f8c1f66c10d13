"""Programs in an archive: .tar.gz, .tgz or .zip."""

from __future__ import annotations

import os
import posixpath
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from kpipe.errors import InvalidPipeline

if TYPE_CHECKING:
    from tarfile import TarFile
    from zipfile import ZipFile

SUFFIXES = (".tar.gz", ".tgz", ".zip")
HEAD_BYTES = 4096  # enough for any first line that the kernel accepts (256 bytes)


@dataclass(frozen=True)
class Member:
    """One entry: `kind` is file, folder, link, or other; `target` is the target of a link, inside the archive."""

    name: str
    kind: str
    mode: int
    target: str | None = None


def is_archive(path: Path) -> bool:
    """Return whether a path is an archive, by its extension, as in SingleStore."""
    return path.name.lower().endswith(SUFFIXES)


def inspect(path: Path, file: IO[bytes], member: str) -> tuple[int, bytes]:
    """Return mode and first bytes of one file in an archive, after checking every entry.

    Args:
        path: the archive's, for its name.
        file: the archive.
        member: path inside it.

    Raises:
        InvalidPipeline: not an archive, an entry outside of it, or no such file inside.
    """
    wanted = posixpath.normpath(member)
    with _opened(path, file) as archive:
        members = _checked(path, archive)
        found = members.get(wanted)
        if found is None:
            files = sorted(name for name, entry in members.items() if entry.kind == "file" and entry.mode & 0o111)
            hint = f"programs in it: {', '.join(files[:5])}" if files else "the archive contains no executable file"
            raise InvalidPipeline(f"archive {path.name} contains no {member!r}", hint)
        if found.kind != "file":
            raise InvalidPipeline(f"{member!r} in archive {path.name} is a {found.kind}", "name a regular file")
        with _open_member(archive, found.name) as inside:
            return found.mode, inside.read(HEAD_BYTES)


def unpack(path: Path, file: IO[bytes], into: Path) -> None:
    """Unpack the archive into that folder, which exists and is empty.

    Only files, folders and links that stay inside; modes without set-uid, and not writable for other users.

    Args:
        path: the archive's, for its name.
        file: the archive.
        into: a private folder.

    Raises:
        InvalidPipeline: as `inspect`.
    """
    with _opened(path, file) as archive:
        for member in _checked(path, archive).values():
            _write(archive, member, into)


def _write(archive: TarFile | ZipFile, member: Member, root: Path) -> None:
    path = root / posixpath.normpath(member.name)
    if member.kind == "folder":
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if member.kind == "link":
        path.symlink_to(os.path.relpath(root / (member.target or ""), path.parent))
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "wb") as out, _open_member(archive, member.name) as file:
        shutil.copyfileobj(file, out, 1 << 20)
        os.fchmod(out.fileno(), (member.mode & 0o755) | 0o600)


def _opened(path: Path, file: IO[bytes]) -> TarFile | ZipFile:
    import tarfile  # here, since workers without an archive need not import it
    import zipfile

    try:
        return zipfile.ZipFile(file) if path.name.lower().endswith(".zip") else tarfile.open(fileobj=file, mode="r:gz")
    except (tarfile.TarError, zipfile.BadZipFile, OSError, EOFError) as error:
        raise InvalidPipeline(
            f"{path} cannot be read as an archive: {error}", "make it with: tar czf NAME.tgz -C FOLDER ."
        ) from error


def _open_member(archive: TarFile | ZipFile, name: str) -> IO[bytes]:
    if hasattr(archive, "extractfile"):
        file: IO[bytes] | None = archive.extractfile(name)
        assert file is not None  # only called for regular files
        return file
    return archive.open(name)


def _checked(path: Path, archive: TarFile | ZipFile) -> dict[str, Member]:
    """Return entries by normalised name. A duplicate name, or a name below a link, is rejected: it could write through a link."""
    found: dict[str, Member] = {}
    for member in _members(archive):
        name = posixpath.normpath(member.name)
        for place in (member.name, member.target):
            if place is not None and (place.startswith("/") or posixpath.normpath(place).split("/")[0] == ".."):
                raise InvalidPipeline(f"archive {path.name}: {member.name!r} leads outside of it", "pack it again without")
        if member.kind == "other":
            raise InvalidPipeline(f"archive {path.name}: {member.name!r} is a device or a pipe", "pack it again without")
        if name in found and not found[name].kind == member.kind == "folder":
            raise InvalidPipeline(f"archive {path.name}: {member.name!r} is duplicated", "pack it again")
        found[name] = member
    for name in found:
        parts = name.split("/")
        for length in range(1, len(parts)):
            above = found.get("/".join(parts[:length]))
            if above is not None and above.kind != "folder":
                raise InvalidPipeline(f"archive {path.name}: {name!r} lies below a {above.kind}", "pack it again")
    found.pop(".", None)
    return found


def _members(archive: TarFile | ZipFile) -> Iterator[Member]:
    if hasattr(archive, "getmembers"):
        for info in archive.getmembers():
            kind = "file" if info.isfile() else "folder" if info.isdir() else "other"
            target = None
            if info.issym():  # relative to the link's own folder
                kind, target = "link", posixpath.join(posixpath.dirname(info.name), info.linkname)
            elif info.islnk():  # relative to the archive
                kind, target = "link", info.linkname
            yield Member(info.name, kind, info.mode, target)
    else:
        for entry in archive.infolist():
            mode = entry.external_attr >> 16
            plain = not stat.S_IFMT(mode) or stat.S_ISREG(mode)
            kind = "folder" if entry.is_dir() else "file" if plain else "other"
            yield Member(entry.filename, kind, stat.S_IMODE(mode))
