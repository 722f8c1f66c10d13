"""List the files or objects that match a path with wildcards, in the order of their names."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator

from kpipe.errors import ReadFailed
from kpipe.terminal import plain
from resources.object_store.config import StoreAccess
from resources.sources.files.content import Facts, local_facts, store_of, unreadable

__all__ = ["listed", "regex"]


def regex(path: str) -> str:
    """Return the regular expression of the names that match a path with wildcards.

    `*` and `?` match within a name, `[...]` one character, `**` as a whole part any number of folders. As in a shell, a wildcard
    does not match a dot at the beginning of a name, nor an empty name.
    """
    scheme, slashes, rest = path.rpartition("://")
    parts = [r"(?:(?!\.)[^/]+/)*" if part == "**" else _part(part) + "/" for part in rest.split("/")]
    return f"^{re.escape(scheme + slashes)}{''.join(parts).removesuffix('/')}$"


def _part(part: str) -> str:
    first = r"(?=[^./])" if part[:1] in ("*", "?", "[") else ""  # not empty: a store has objects such as `in/`, for a folder
    made, at = first, 0
    while at < len(part):
        sign, close = part[at], part.find("]", at + 2)
        if sign == "[" and close > 0:
            inner = part[at + 1 : close].replace("\\", "\\\\").replace("[", "\\[")
            made += f"(?!/)[{'^' + inner[1:] if inner[0] == '!' else inner}]"
            at = close
        else:
            made += {"*": "[^/]*", "?": "[^/]"}.get(sign) or re.escape(sign)
        at += 1
    return made


def listed(path: str, root: str, most: int, access: StoreAccess | None) -> list[tuple[str, Facts]]:
    """Return names and facts of the files that match, sorted by name.

    Args:
        path: with wildcards.
        root: folder or prefix that contains them.
        most: most files.
        access: to the object store; None: files on a disk.

    Raises:
        ReadFailed: the folder is missing, there are more than `most` files, or a name has unprintable characters.
        StoreUnreachable: the object store did not answer.
    """
    wanted, found = re.compile(regex(path)), list[tuple[str, Facts]]()
    try:
        for name, facts in _objects(path, access) if access is not None else _files(root, _depth(path, root)):
            if not wanted.match(name):
                continue
            if "..." in name:
                raise ReadFailed(f"file {name}: names of Dagster's partitions cannot have '...'", "rename it")
            if not name.isprintable() or any("\ud800" <= sign <= "\udfff" for sign in name):
                raise ReadFailed(
                    f"file {plain(ascii(name))}: its name has characters that cannot be printed",
                    "rename it, or narrow source.files.path",
                )
            found.append((name, facts))
            if len(found) > most:
                raise ReadFailed(
                    f"{path}: expected at most {most} files (source.files.max_files), found more",
                    "move files that were read to another folder; or raise source.files.max_files",
                )
    except OSError as error:
        raise unreadable(root, error) from error
    return sorted(found)


def _objects(path: str, access: StoreAccess) -> Iterator[tuple[str, Facts]]:
    """Yield the objects whose names begin as the path does before its first wildcard."""
    for item in store_of(access).listed(re.split(r"[*?\[]", path, maxsplit=1)[0]):
        yield item.uri, Facts(item.size, item.tag.strip('"'))


def _depth(path: str, root: str) -> int | None:
    """Return how many folders below the root can contain matching files; None: any number."""
    parts = path[len(root) :].strip("/").split("/")
    return None if "**" in parts else len(parts) - 1


def _files(root: str, depth: int | None) -> Iterator[tuple[str, Facts]]:
    """Yield all regular files below a folder. Links to files are followed, links to folders are not, as they may be circular."""
    waiting = [(root, 0)]
    while waiting:
        folder, at = waiting.pop()
        try:
            entries = list(os.scandir(folder))
        except FileNotFoundError:
            if folder == root:
                raise
            continue  # removed since it was listed
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if depth is None or at < depth:
                    waiting.append((entry.path, at + 1))
                continue
            try:
                found = os.stat(entry.path)
            except FileNotFoundError:  # removed since it was listed, or a link that leads nowhere
                continue
            if stat.S_ISREG(found.st_mode):
                yield entry.path, local_facts(found)
