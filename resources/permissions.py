"""Check who else may write to a home: definitions in it run code, and its state decides what is loaded."""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kpipe.errors import KpipeError

__all__ = ["SETTING", "Trust", "check", "close"]

SETTING = "KPIPE_HOME_WRITERS"
_MOST_LINKS = 40  # as Linux has it: path_resolution(7)
_ROOT = 0


@dataclass(frozen=True)
class Trust:
    """Users and groups whose writing is trusted.

    Attributes:
        user: effective user id of this process; trusted, as root is.
        name: of that user; empty if it has none.
        users: the owner of kpipe's code, who could change that as well, and users of the setting.
        groups: ids that the setting adds.
        everyone: the setting is `*`.
    """

    user: int
    name: str
    users: frozenset[int] = frozenset()
    groups: frozenset[int] = frozenset()
    everyone: bool = False

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Trust:
        """Return this process's user, the owner of kpipe's code, and what KPIPE_HOME_WRITERS adds.

        The setting is `USER`, `:GROUP`, `USER:GROUP` or `*`. Root in a container that works in a mounted checkout needs none.

        Raises:
            KpipeError: the setting names no user or group.
        """
        user = os.geteuid()
        try:
            name = pwd.getpwuid(user).pw_name
        except KeyError:
            name = ""
        value = (os.environ if environ is None else environ).get(SETTING, "")
        if value == "*":
            return cls(user, name, everyone=True)
        owner, _, group = value.partition(":")
        try:
            users = {int(owner) if owner.isdecimal() else pwd.getpwnam(owner).pw_uid} if owner else set()
            groups = {int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid} if group else set()
        except (KeyError, ValueError) as error:
            raise KpipeError(
                f"{SETTING} is {value!r}: no such user or group: expected USER, :GROUP, USER:GROUP or *", "use their numbers"
            ) from error
        return cls(user, name, frozenset({*users, os.stat(__file__).st_uid}), frozenset(groups))

    def owns(self, user: int) -> bool:
        """Return whether files of this user are trusted."""
        return self.everyone or user in (_ROOT, self.user) or user in self.users

    def group(self, number: int) -> bool:
        """Return whether members of the group may write."""
        if self.everyone or number in self.groups:
            return True
        try:
            entry = grp.getgrgid(number)
        except KeyError:
            return self.own_group(number, "", ())
        return self.own_group(number, entry.gr_name, entry.gr_mem)

    def own_group(self, number: int, name: str, members: Sequence[str]) -> bool:
        """Return True if only the user and root are in the group: a user-private group, or root's.

        The group database does not list users with this primary group. So a private group is recognised by its name, as
        useradd(8) creates it, or by its number if it has no name.
        """
        if set(members) - {self.name, "root"}:
            return False
        return number == _ROOT or (name == self.name if name else number == self.user)


def check(home: Path, parts: Iterable[Path], trust: Trust, definitions: Path | None = None) -> None:
    """Reject a home that users other than the trusted ones can write to or replace by another folder.

    The content of a folder is checked only if others can enter the folder. Exceptions are definitions, files of other
    owners, and files with several hard links, which can be reached from elsewhere. A read-only mount is trusted. An empty
    folder of this user is closed: it contains nothing that others may have changed.

    Args:
        home: the folder.
        parts: files and folders in it, or in each other; a folder precedes its content.
        trust: whose writing is trusted.
        definitions: folder of files that run code.

    Raises:
        KpipeError: names the path, its owner, its mode and the command that fixes it.
    """
    if trust.everyone:
        return
    _check_way(home, trust)
    closed = {folder for folder in (home,) if _is_closed(folder)}
    for part in parts:
        if part.is_symlink():
            _check_way(part, trust)
        elif part.parent in closed and not (part.parent == definitions or _is_reached_from_elsewhere(part, trust)):
            closed.add(part)
        else:
            with suppress(FileNotFoundError, NotADirectoryError):
                _check(part, os.lstat(part), trust)
        if _is_closed(part):
            closed.add(part)


def close(path: Path, trust: Trust) -> None:
    """Remove others' permissions from a folder of this user; a trusted group keeps its own."""
    with suppress(OSError):  # a read-only mount, or one without modes: others cannot write to it
        found = os.lstat(path)
        spare = 0o007 if found.st_gid in trust.groups else 0o077
        if stat.S_ISDIR(found.st_mode) and found.st_uid == trust.user and not trust.everyone and found.st_mode & spare:
            path.chmod(stat.S_IMODE(found.st_mode) & ~spare)


def _is_reached_from_elsewhere(part: Path, trust: Trust) -> bool:
    """Return whether others may write to a file although they cannot enter its folder."""
    try:
        found = os.lstat(part)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and (found.st_nlink > 1 or not trust.owns(found.st_uid))


def _is_closed(path: Path) -> bool:
    try:
        return not path.stat().st_mode & 0o011
    except OSError:
        return False


def _check_way(path: Path, trust: Trust) -> None:
    """Check every folder and link on the way to a path, and the path itself."""
    for place, found, last in _way(path):
        _check(place, found, trust, passed=not last)


def _way(path: Path) -> Iterator[tuple[Path, os.stat_result, bool]]:
    """Yield each path on the way, as far as it exists, and whether it is the last."""
    here, ahead, links = Path("/"), [*reversed(path.parts[1:])], 0
    yield here, os.lstat(here), not ahead
    while ahead:
        name = ahead.pop()
        place = here.parent if name == ".." else here / name
        try:
            found = os.lstat(place)
        except OSError:  # missing or inaccessible: reported when it is opened
            return
        link = stat.S_ISLNK(found.st_mode)
        yield place, found, not ahead and not link
        if link:
            links += 1
            if links > _MOST_LINKS:
                return
            target = Path(os.readlink(place))
            here = Path("/") if target.is_absolute() else here
            ahead += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        else:
            here = place


def _check(path: Path, found: os.stat_result, trust: Trust, passed: bool = False) -> None:
    """Reject a path whose owner, or whose permission for others to write, is not trusted.

    Args:
        path: a file, a folder or a link.
        found: of lstat.
        trust: whose writing is trusted.
        passed: it is on the way to the home. In a sticky folder such as /tmp, users cannot rename others' files.
    """
    link = stat.S_ISLNK(found.st_mode)
    mode = 0 if link else stat.S_IMODE(found.st_mode)
    quoted = shlex.quote(str(path))
    if not trust.owns(found.st_uid):
        problem, allow = f"belongs to user {_user(found.st_uid)}", str(found.st_uid)
        command = f"chown {'-h ' if link else ''}{trust.user} {quoted}"
        if passed and not link:
            command = "set KPIPE_HOME to a folder below one of yours"
    elif passed and mode & stat.S_ISVTX:
        return
    elif mode & stat.S_IWOTH:
        problem, command, allow = "every user may write to it", f"chmod go-w {quoted}", "*"
    elif mode & stat.S_IWGRP and not trust.group(found.st_gid):
        problem, command, allow = f"group {_group(found.st_gid)} may write to it", f"chmod go-w {quoted}", f":{found.st_gid}"
    elif mode & stat.S_IWGRP and _has_acl(path):
        problem, command, allow = "its access control list may let others write to it", f"setfacl -b {quoted}", "*"
    else:
        return
    if _is_read_only(path) or (not passed and found.st_uid == trust.user and _take(path, mode)):
        return
    raise KpipeError(
        f"{path}: {problem}: owner {_user(found.st_uid)}, group {_group(found.st_gid)}, mode {stat.S_IMODE(found.st_mode):04o}; "
        "who can write there can run code as your user",
        f"check it for changes, then: {command}; or trust them: {SETTING}={allow}",
    )


def _has_acl(path: Path) -> bool:
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except (OSError, AttributeError):  # a file system, or a system, without them
        return False


def _is_read_only(path: Path) -> bool:
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _take(path: Path, mode: int) -> bool:
    """Close a folder if it is empty, and return whether it was."""
    try:
        if any(path.iterdir()):
            return False
        path.chmod(0o700)
        if any(path.iterdir()):  # others have written to it meanwhile
            path.chmod(mode)
            return False
    except OSError:
        return False
    return True


def _user(number: int) -> str:
    try:
        return f"{number} ({pwd.getpwuid(number).pw_name})"
    except KeyError:
        return str(number)


def _group(number: int) -> str:
    try:
        return f"{number} ({grp.getgrgid(number).gr_name})"
    except KeyError:
        return str(number)
