"""The connector of a list in pages: one split, whose positions are values of a column, or the numbers of the records."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa

from kpipe.definition.source import SourceHttp
from kpipe.errors import ReadFailed
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from resources.kafka.record_block import RecordBlock
from resources.secrets import Secret
from resources.sources.connector import Split
from resources.sources.http.requests import Page, Pages
from resources.sources.json_rows import json_records

__all__ = ["HttpConnector"]

_LARGEST = 1 << 62
_MOST_PAGES = 1 << 40


@dataclass(eq=False)
class HttpConnector:
    """See `Connector`.

    Attributes:
        http: the definition.
        credentials: secrets by name.
    """

    noun: ClassVar = "list"
    on_removal: ClassVar = ""

    http: SourceHttp
    credentials: dict[str, Secret] = field(repr=False)
    _end: int = field(default=0, init=False, repr=False)  # an end that was seen: the search for a later one begins there

    def __getstate__(self) -> dict[str, Any]:
        """Return what tasks need."""
        return {**vars(self), "_end": 0}

    @property
    def unchanging(self) -> bool:
        """True if positions are the numbers of records: a record that is removed would shift all later ones."""
        return self.http.column is None

    @property
    def place(self) -> str:
        """The address, without parameters."""
        return self.http.name

    @property
    def pattern(self) -> str:
        """See `Connector`."""
        return f"^{re.escape(self.http.name)}$"

    @property
    def secrets(self) -> Sequence[str]:
        """Credentials of the server."""
        return list(self.credentials.values())

    def header(self, name: str) -> tuple[str, ...] | None:
        """See `Connector`: records have the names of their members."""
        return None

    def columns(self, name: str) -> Columns:
        """See `Connector`: JSON has no types."""
        return Columns()

    def splits(self) -> Sequence[Split]:
        """See `Connector`. An empty list has no split."""
        with Pages(self.http, self.credentials) as pages:
            walk = _Walk(self.http, pages)
            if self.http.column is not None:
                self._end = walk.end_of_column(self._end)
                return [Split(self.http.name, self._meaning, self._end)] if self._end else []
            first = walk.first()
            if not first.texts:
                return []
            self._end = walk.end_of_list(self._end, first)
            return [Split(self.http.name, self._identity(first), self._end)]

    def _identity(self, first: Page) -> str:
        """Return what a list without a column is recognized by: its definition, and its first record."""
        return f"{self._meaning}.{_digest(first.texts[0])}"

    @property
    def _meaning(self) -> str:
        """Return a hash of the fields that positions depend on: the list, and the column that counts."""
        http = self.http
        size = str(http.page_size)
        parameters = [pair for pair in parse_qsl(urlsplit(http.url).query, keep_blank_values=True) if pair[1] != size]
        return _digest(json.dumps([http.column, http.records, parameters]))

    def read(self, name: str, identity: str, span: Range) -> Iterator[RecordBlock]:
        """See `Connector`."""
        with Pages(self.http, self.credentials) as pages:
            walk = _Walk(self.http, pages)
            if self.http.column is not None:
                if self._meaning != identity:
                    raise ReadFailed(f"list {name}: its definition changed", "run it again")
                yield from walk.values(span)
                return
            first = walk.first()
            if not first.texts or self._identity(first) != identity:
                raise ReadFailed(f"list {name} was replaced while it was read", "run it again: the next run names what changed")
            yield from walk.numbers(span, first)


class _Walk:
    """Pages of a list, in order, up to `max_pages`."""

    def __init__(self, http: SourceHttp, pages: Pages) -> None:
        self._http, self._pages, self._left = http, pages, http.max_pages

    def _get(self, url: str) -> Page:
        self._left -= 1
        if self._left < 0:
            raise self._failed(
                f"expected at most {self._http.max_pages} pages (source.http.max_pages), found more",
                "request larger pages, or raise source.http.max_pages",
            )
        return self._pages.get(url)

    def _failed(self, what: str, hint: str) -> ReadFailed:
        return ReadFailed(f"list {self._http.name}: {what}", hint)

    def _shorter(self, expected: str, found: str) -> ReadFailed:
        return self._failed(f"it became shorter while it was read: expected {expected}, found {found}", "run it again")

    # -- positions by a column

    def _since(self, value: int) -> tuple[Page, list[int]]:
        """Return a page of records whose column has this value or a higher one, and these values.

        The parameter names each position: without it, a server may return its newest records. `after` cannot name the value 0, as
        many servers refuse -1: its record is looked for in the page that `url` alone returns.
        """
        http = self._http
        if http.after is None:
            return self._ordered(self._get(self._pages.with_parameter(str(http.from_), value)), value)
        if value == 0:
            page = self._get(http.url)
            zeros = [at for at, found in enumerate(self._values(page)) if found == 0]
            if zeros:
                return self._ordered(Page([page.texts[at] for at in zeros], [page.values[at] for at in zeros]), 0)
        least = max(value, 1)
        return self._ordered(self._get(self._pages.with_parameter(http.after, least - 1)), least)

    def _values(self, page: Page) -> list[int]:
        """Return the values of the column."""
        values = [record.get(str(self._http.column)) for record in page.values]
        for at in values:
            if not isinstance(at, int) or isinstance(at, bool) or not 0 <= at < _LARGEST:
                raise self._failed(
                    f"member {self._http.column}: expected an integer from 0, found {_shown(at)}", "change source.http.column"
                )
        return cast("list[int]", values)

    def _ordered(self, page: Page, least: int) -> tuple[Page, list[int]]:
        """Return a page, and the values of the column, after checking that they begin at `least` or later and increase."""
        http, last, values = self._http, least - 1, self._values(page)
        for at in values:
            if at <= last:
                raise self._failed(
                    f"member {http.column}: expected {last + 1} or more, found {at}: the server does not return records in the"
                    f" order of {http.column} from the value that {http.from_ or http.after} names",
                    "check the parameter, and request ascending order in source.http.url",
                )
            last = at
        return page, values

    def end_of_column(self, known: int) -> int:
        """Return the value after the highest one. Searches upward in steps that double, then halves the rest.

        A page contains the values of all its records, so the end of a list that fits in a page takes two requests; with `after`,
        one more.
        """
        end, at, above, step = known, known, _LARGEST, 1
        while at < _LARGEST:
            found = self._since(at)[1]
            if not found:
                above = at
                break
            end = found[-1] + 1
            at, step = end if step == 1 else end + step, step * 2
        while end < above:
            middle = (end + above) // 2
            found = self._since(middle)[1]
            end, above = (found[-1] + 1, above) if found else (end, middle)
        return end

    def values(self, span: Range) -> Iterator[RecordBlock]:
        """Read the records whose values are in the range. When it was planned, a record had its last value or a higher one."""
        at = span.start
        while at < span.end:
            page, found = self._since(at)
            if not found:  # such as an answer of a replica that lags behind: the rest is not a gap
                raise self._shorter(f"{self._http.column} from {span.end - 1} on", f"none from {at} on")
            kept = sum(value < span.end for value in found)
            if kept:
                yield json_records(list(page.texts[:kept]), pa.array(found[:kept], pa.int64()))
            at = found[-1] + 1

    # -- positions by number

    def _numbered(self, number: int) -> Page:
        """Return a page by its number from 0; it may have fewer records than `page_size`, or none."""
        http, size = self._http, int(self._http.page_size or 0)
        if http.page is not None:
            page = self._get(self._pages.with_parameter(http.page, http.first_page + number))
        else:
            page = self._get(self._pages.with_parameter(str(http.offset), number * size))
        if len(page.texts) > size:
            raise self._failed(
                f"expected pages of {size} records (source.http.page_size), found {len(page.texts)}",
                "set source.http.page_size to the size that source.http.url requests",
            )
        return page

    def first(self) -> Page:
        """Return the first page."""
        return self._numbered(0) if self._http.page_size is not None else self._get(self._http.url)

    def end_of_list(self, known: int, first: Page) -> int:
        """Return the number of records."""
        if self._http.page_size is None:
            return sum(len(page.texts) for page in self._linked(first))
        size, low, step = self._http.page_size, 0, 1  # page `low` is full
        count = len(first.texts)
        high = max(known // size, 1) if count == size else 0
        while high and (count := len(self._numbered(high).texts)) == size:
            low, high, step = high, high + step, step * 2
            if high > _MOST_PAGES:
                raise self._failed(
                    f"the server returns a full page for number {low}: it seems to ignore the parameter",
                    "check source.http.page or source.http.offset",
                )
        while high - low > 1:
            middle = (low + high) // 2
            found = len(self._numbered(middle).texts)
            low, high, count = (middle, high, count) if found == size else (low, middle, found)
        if 0 < count < size and self._numbered(high + 1).texts:
            raise self._failed(
                f"expected pages of {size} records (source.http.page_size), found {count} before the last page",
                "set source.http.page_size to the size that the server returns",
            )
        return high * size + count

    def _linked(self, first: Page) -> Iterator[Page]:
        page, seen = first, set[str]()
        yield page
        while page.following:
            if page.following in seen:
                raise self._failed(
                    "its pages lead to a page again that was read", "check source.http.next_link or source.http.cursor"
                )
            seen.add(page.following)
            page = self._get(page.following)
            yield page

    def numbers(self, span: Range, first: Page) -> Iterator[RecordBlock]:
        """Read the records whose numbers are in the range."""
        size = self._http.page_size
        begin = 0 if size is None else span.start // size * size
        if size is None:
            pages: Iterator[Page] = self._linked(first)
        else:
            pages = (self._numbered(number) for number in range(span.start // size, -(-span.end // size)))
        at = begin
        for page in pages:
            low, high = max(span.start, at), min(span.end, at + len(page.texts))
            if low < high:
                yield json_records(list(page.texts[low - at : high - at]), pa.array(range(low, high), pa.int64()))
            at += len(page.texts)
            if at >= span.end:
                return
            if size is not None and len(page.texts) < size:
                break
        raise self._shorter(f"{span.end} records", str(at))


def _shown(value: Any) -> str:
    return "nothing" if value is None else f"{value}" if isinstance(value, int) else type(value).__name__


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
