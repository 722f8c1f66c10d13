"""The end of a program's stderr: bounded, redacted, and safe to print."""

from __future__ import annotations

from collections.abc import Iterable

LAST_LINES = 5  # a Python traceback ends with the place and the error; five lines contain both
LAST_CHARACTERS = 600  # one line of a log
# A program may be killed in the middle of a secret; fewer of its first bytes at the very end reveal nothing useful.
TORN_SECRET = 4


def escape(text: str) -> str:
    """Escape every character that is not printable, as in Python's repr; newlines too."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Tail:
    """Keep the last `limit` bytes that were added.

    Secrets are searched for line by line, so a secret of several lines (a PEM key) is found in each of its lines.
    """

    def __init__(self, limit: int, secrets: Iterable[str] = ()) -> None:
        lines = {line for secret in secrets for line in secret.encode(errors="surrogateescape").splitlines()}
        self._secrets = sorted((line for line in lines if line.strip()), key=len, reverse=True)  # longest first
        self._limit = limit
        # The first bytes kept may be the end of a secret that was cut: that many more bytes are kept, and never shown.
        self._margin = max(map(len, self._secrets), default=1) - 1
        self._kept = bytearray()
        self.total = 0

    def add(self, chunk: bytes) -> None:
        """Add a chunk; memory stays below twice the limit plus the chunk."""
        self.total += len(chunk)
        self._kept += chunk
        if len(self._kept) > 2 * self._limit + self._margin:
            del self._kept[: len(self._kept) - self._limit - self._margin]

    def lines(self) -> list[str]:
        """Return the kept lines, redacted and escaped."""
        return [escape(line.decode(errors="backslashreplace")) for line in self._redacted().splitlines()]

    def text(self) -> str:
        """Return the kept lines, each ended by a newline."""
        return "".join(line + "\n" for line in self.lines())

    def last(self) -> str:
        """Return the last lines as one line, for a message; empty without output."""
        lines = [line.rstrip() for line in self.lines() if line.strip()]
        return " | ".join(lines[-LAST_LINES:])[-LAST_CHARACTERS:]

    def _redacted(self) -> bytes:
        kept = bytes(self._kept)
        start = max(0, len(kept) - self._limit)
        if self._secrets:
            torn = [
                secret[:end] for secret in self._secrets for end in range(TORN_SECRET, len(secret)) if kept.endswith(secret[:end])
            ]
            spans = _joined(_found(kept, self._secrets) + [(len(kept) - len(part), len(kept)) for part in torn])
            if self.total > len(kept):
                start = max(start, self._margin)
            out, at = bytearray(), start
            for first, end in spans:
                if end > at:
                    out += kept[at : max(first, at)] + b"***"
                    at = end
            return bytes(out + kept[at:])
        return kept[start:]


def _found(data: bytes, needles: list[bytes]) -> list[tuple[int, int]]:
    """Return the positions of the needles, `[first, end)`."""
    found = []
    for needle in needles:
        at = data.find(needle)
        while at >= 0:
            found.append((at, at + len(needle)))
            at = data.find(needle, at + 1)
    return found


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort spans, and merge overlapping ones."""
    joined: list[tuple[int, int]] = []
    for first, end in sorted(spans):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((first, end))
    return joined
