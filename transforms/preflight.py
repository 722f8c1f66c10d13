"""Check on the driver that a file can be run as a program, before it is shipped."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kpipe.errors import InvalidPipeline
from transforms import archive as archives
from transforms.program import search_path

VERSION_CHARACTERS = 12  # as many as git shows: two versions of one program do not collide


@dataclass(frozen=True)
class Resolved:
    """A program that passed the checks.

    Attributes:
        file: absolute path of the file to ship: the program, or the archive that contains it.
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
        """Start of the hash, for messages and for the ledger."""
        return self.sha256[:VERSION_CHARACTERS]


def resolve(
    program: str | Path, archive: str | Path | None = None, args: Sequence[str] = (), base_dir: Path = Path()
) -> Resolved:
    """Check a pipeline's `transform` on the driver.

    Args:
        program: path of the program; inside the archive if there is one. A relative path counts from base_dir and must
            stay below it, links included; an absolute one may lie anywhere.
        archive: path of a .tar.gz, .tgz or .zip, under the same rule.
        args: arguments, visible to every user of the workers' machines.
        base_dir: folder of the pipeline's definition.

    Raises:
        InvalidPipeline: the program cannot run; the message contains the reason, the hint a fix.
    """
    for text in (str(program), *args):
        if not text and text == str(program):
            raise InvalidPipeline("transform.program is empty", "name an executable file")
        if "\0" in text:
            raise InvalidPipeline("transform contains a NUL character", "remove it")
    if archive is None:
        with opened(program, base_dir, "transform.program") as (path, file):
            if archives.is_archive(path):
                raise InvalidPipeline(f"{path.name} is an archive", "name it under transform.archive, and the program in it")
            head = file.read(archives.HEAD_BYTES)
            _check_mode(os.fstat(file.fileno()).st_mode, str(program), f"chmod +x {path}")
            _check_head(head, str(program))
            return Resolved(path, None, tuple(args), sha256_of(file))
    with opened(archive, base_dir, "transform.archive") as (path, file):
        if not archives.is_archive(path):
            raise InvalidPipeline(f"{path.name} is not an archive", f"use one of {', '.join(archives.SUFFIXES)}")
        member = os.path.normpath(program)
        if member.startswith(("/", "..")):
            raise InvalidPipeline(f"transform.program {str(program)!r} leads outside of the archive", "name a file inside")
        mode, head = archives.inspect(path, file, member)
        _check_mode(mode, f"{program} in {path.name}", f"chmod +x {program}, and pack again with a tool that keeps modes")
        _check_head(head, f"{program} in {path.name}", inside=True)
        return Resolved(path, member, tuple(args), sha256_of(file))


def sha256_of(file: IO[bytes]) -> str:
    """Return the hash of a file's whole content, hexadecimal."""
    digest = hashlib.sha256()
    file.seek(0)
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


@contextmanager
def opened(given: str | Path, base_dir: Path, field: str) -> Iterator[tuple[Path, IO[bytes]]]:
    """Open a regular file, and return its absolute path without links. All checks use the open file: names may change.

    Args:
        given: a path; a relative one counts from base_dir and must stay below it, links included.
        base_dir: a folder.
        field: of the definition, for messages.

    Raises:
        InvalidPipeline: the file does not exist or cannot be read, or every user can change it.
    """
    base = base_dir.resolve()
    try:
        path = (base / given).resolve()
        mode = path.stat().st_mode
    except FileNotFoundError:
        known = shutil.which(given, path=search_path()) if field == "transform.program" and os.sep not in str(given) else None
        base_hint = "check the path" if os.path.isabs(given) else f"relative paths start at {base}"
        hint = f"write {known} for the one in PATH" if known else base_hint
        raise InvalidPipeline(f"{field}: file {str(given)!r} does not exist", hint) from None
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, up to Python 3.12
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidPipeline(f"{field} {str(given)!r} cannot be read: {reason}", "check the path") from None
    if not os.path.isabs(given) and not path.is_relative_to(base):
        raise InvalidPipeline(f"{field} {str(given)!r} leads out of {base}", f"write the whole path, {path}, if it is meant")
    if stat.S_ISDIR(mode):
        raise InvalidPipeline(f"{field} {str(given)!r} is a folder", "name the file itself")
    if not stat.S_ISREG(mode):
        raise InvalidPipeline(f"{field} {str(given)!r} is not a regular file", "copy it into one")
    if mode & stat.S_IWOTH:
        raise InvalidPipeline(f"{field} {str(given)!r} can be changed by every user", f"chmod o-w {path}")
    if not os.access(path, os.R_OK):
        raise InvalidPipeline(f"{field} {str(given)!r} cannot be read", f"chmod +r {path}")
    changed = InvalidPipeline(f"{field} {str(given)!r} changed during its check", "try it again")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise changed from error
    with os.fdopen(descriptor, "rb") as file:
        # A folder above it may have become a link since: the kernel reports the path of the open file.
        with suppress(FileNotFoundError):
            if os.readlink(f"/proc/self/fd/{descriptor}") != str(path):
                raise changed
        if os.fstat(descriptor).st_mode != mode:
            raise changed
        yield path, file


def _check_mode(mode: int, name: str, hint: str) -> None:
    if not mode & 0o111:
        raise InvalidPipeline(f"transform.program {name} is not executable", hint)


def _check_head(head: bytes, name: str, inside: bool = False) -> None:
    """Check the first bytes: a binary, or a script whose interpreter exists here, or may be in the archive."""
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
                f"transform.program {name} needs {asked or 'a program'} from env, which is not in {search_path()}",
                f"install it, here and on the workers, or write its whole path into the first line of {name}",
            )
