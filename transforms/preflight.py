"""Is that file a program? Asked on the driver, before anything is shipped; and again on a worker: is it still that one?"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kpipe.errors import InvalidPipeline, TransformFailed
from transforms import archive as archives
from transforms.program import search_path
from transforms.stderr import escape

VERSION_CHARACTERS = 12  # as many as git shows: two versions of one program do not collide


@dataclass(frozen=True)
class Resolved:
    """A program that passed, as the driver found it.

    Attributes:
        file: absolute path of what has to reach the workers: the program, or the archive that holds it.
        member: the program's path inside the archive; None for a single file.
        args: its arguments.
        sha256: content of `file`, hexadecimal.
    """

    file: Path
    member: str | None
    args: tuple[str, ...]
    sha256: str

    @property
    def version(self) -> str:
        """Start of the hash, for people and for the ledger."""
        return self.sha256[:VERSION_CHARACTERS]

    def argv(self, shipped: Path) -> tuple[str, ...]:
        """Command line on a worker.

        Args:
            shipped: absolute path of the program there, or of the folder into which the archive was unpacked.
        """
        return (str(shipped / self.member if self.member is not None else shipped), *self.args)


def resolve(
    program: str | Path, archive: str | Path | None = None, args: Sequence[str] = (), base_dir: Path = Path()
) -> Resolved:
    """Checks a pipeline's `transform` on the driver.

    Args:
        program: path of the program; inside the archive if there is one. A relative path counts from base_dir and must
            stay below it, links included; an absolute one may lie anywhere.
        archive: path of a .tar.gz, .tgz or .zip, under the same rule.
        args: arguments, visible to every user of the workers' machines.
        base_dir: folder of the pipeline's definition.

    Raises:
        InvalidPipeline: it could not run; the message says why, the hint what to do about it.
    """
    for text in (str(program), *args):
        if not text and text == str(program):
            raise InvalidPipeline("transform.program is empty", "name an executable file")
        if "\0" in text:
            raise InvalidPipeline("transform holds a NUL character", "remove it")
    if archive is None:
        path = _located(program, base_dir, "program")
        if archives.is_archive(path):
            raise InvalidPipeline(f"{path.name} is an archive", "name it under transform.archive, and the program in it")
        with path.open("rb") as file:
            head = file.read(archives.HEAD_BYTES)
        _check_mode(path.stat().st_mode, str(program), f"chmod +x {path}")
        _check_head(head, str(program))
        return Resolved(path, None, tuple(args), sha256_of(path))
    path = _located(archive, base_dir, "archive")
    if not archives.is_archive(path):
        raise InvalidPipeline(f"{path.name} is no archive", f"use one of {', '.join(archives.SUFFIXES)}")
    member = os.path.normpath(program)
    if member.startswith(("/", "..")):
        raise InvalidPipeline(f"transform.program {str(program)!r} leads outside of the archive", "name a file inside")
    mode, head = archives.inspect(path, member)
    _check_mode(mode, f"{program} in {path.name}", f"chmod +x {program}, and pack again with a tool that keeps modes")
    _check_head(head, f"{program} in {path.name}", inside=True)
    return Resolved(path, member, tuple(args), sha256_of(path))


def sha256_of(path: Path) -> str:
    """Hash of a file's content, hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def check_unchanged(path: Path, sha256: str, where: str = "") -> None:
    """On a worker, before a run: the file that arrived is the one that the driver has checked.

    Raises:
        TransformFailed: it is another one, or missing.
    """
    try:
        found = sha256_of(path)
    except OSError as error:
        found = error.strerror or "unreadable"
    if found != sha256:
        raise TransformFailed(
            f"transform {escape(path.name)}{f' ({where})' if where else ''}: the file on this worker is not the one that"
            f" was checked (expected sha256 {sha256[:VERSION_CHARACTERS]}, found {found[:VERSION_CHARACTERS]})",
            "start the pipeline again, so that the program is checked and shipped again",
        )


def _located(given: str | Path, base_dir: Path, field: str) -> Path:
    """Absolute path without links, of a regular file."""
    base = base_dir.resolve()
    try:
        path = (base / given).resolve()
        mode = path.stat().st_mode
    except FileNotFoundError:
        known = shutil.which(given, path=search_path()) if os.sep not in str(given) else None
        hint = f"write {known} for the one in PATH" if known else f"relative paths start at {base}"
        raise InvalidPipeline(f"transform.{field}: there is no file {str(given)!r}", hint) from None
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, up to Python 3.12
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidPipeline(f"transform.{field} {str(given)!r} cannot be read: {reason}", "check the path") from None
    if not os.path.isabs(given) and not path.is_relative_to(base):
        raise InvalidPipeline(
            f"transform.{field} {str(given)!r} leads out of {base}", f"write the whole path, {path}, if it is meant"
        )
    if stat.S_ISDIR(mode):
        raise InvalidPipeline(f"transform.{field} {str(given)!r} is a folder", "name the program itself")
    if not stat.S_ISREG(mode):
        raise InvalidPipeline(f"transform.{field} {str(given)!r} is not a regular file", "copy it into one")
    if mode & stat.S_IWOTH:
        raise InvalidPipeline(f"transform.{field} {str(given)!r} can be changed by every user", f"chmod o-w {path}")
    if not os.access(path, os.R_OK):
        raise InvalidPipeline(f"transform.{field} {str(given)!r} cannot be read", f"chmod +r {path}")
    return path


def _check_mode(mode: int, name: str, hint: str) -> None:
    if not mode & 0o111:
        raise InvalidPipeline(f"transform.program {name} is not executable", hint)


def _check_head(head: bytes, name: str, inside: bool = False) -> None:
    """First bytes: a binary, or a script whose interpreter exists here. Inside an archive it may bring its own."""
    if head.startswith((b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")):  # Linux; macOS, one or two architectures
        return
    if head.startswith(b"\xef\xbb\xbf#!"):
        raise InvalidPipeline(
            f"transform.program {name} starts with a byte order mark, which hides its #! line",
            "save it as UTF-8 without BOM",
        )
    if not head.startswith(b"#!"):
        raise InvalidPipeline(
            f"transform.program {name} is neither a binary nor a script with a #! line",
            "let its first line name the interpreter, such as #!/usr/bin/env python3",
        )
    first = head[2:].split(b"\n", 1)[0]
    if first.endswith(b"\r"):
        raise InvalidPipeline(
            f"transform.program {name} has Windows line ends, so that its interpreter's name ends in a carriage return",
            f"sed -i 's/\\r$//' {name}",
        )
    words = first.decode(errors="backslashreplace").split()
    if not words:
        raise InvalidPipeline(f"transform.program {name} has an empty #! line", "name the interpreter in it")
    if not (inside and not os.path.isabs(words[0])) and not os.access(words[0], os.X_OK):
        raise InvalidPipeline(
            f"transform.program {name} wants the interpreter {words[0]}, which this machine does not have",
            f"install it, here and on the workers, or change the first line of {name}",
        )
    if os.path.basename(words[0]) == "env":
        asked = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), None)
        if asked is None or shutil.which(asked, path=search_path()) is None:
            raise InvalidPipeline(
                f"transform.program {name} asks env for {asked or 'nothing'}, which is not in {search_path()}",
                f"install it, here and on the workers, or write its whole path into the first line of {name}",
            )
