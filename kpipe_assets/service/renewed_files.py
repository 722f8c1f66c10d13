"""Notice that files were replaced, such as those of a mounted secret, and use the new ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from kpipe.errors import KpipeError

__all__ = ["RenewedFiles"]


class RenewedFiles:
    """Files that are read when their server starts, and again after they were replaced.

    Args:
        what: name of their content, for messages.
        paths: of the files; None for those that are not used.
        use: reads the files, and uses them from now on.
        report: prints a line.
    """

    def __init__(self, what: str, paths: Sequence[str | None], use: Callable[[], None], report: Callable[[str], None]) -> None:
        self._what, self._use, self._report = what, use, report
        self._paths = [Path(path) for path in paths if path is not None]
        self._seen = self._versions()

    def check(self) -> None:
        """Use the files if they were replaced. Files that cannot be used are reported, and the earlier ones stay in use."""
        found = self._versions()
        if found == self._seen:
            return
        self._seen = found
        if self.load():
            self._report(f"the {self._what} was renewed")

    def load(self) -> bool:
        """Use the files as they are. Return False if they cannot be used, which is reported."""
        try:
            self._use()
        except (KpipeError, OSError) as error:
            self._report(f"the {self._what} is not renewed: {error}")
            return False
        return True

    def _versions(self) -> list[tuple[int, int] | None]:
        found: list[tuple[int, int] | None] = []
        for path in self._paths:
            try:
                state = path.stat()
                found.append((state.st_ino, state.st_mtime_ns))
            except OSError:  # at this moment it is being replaced
                found.append(None)
        return found
