"""Fields of `source.http`: a list that an HTTP API returns in pages of JSON."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from pydantic import Field, field_validator, model_validator

from kpipe.definition.base import Model
from kpipe.definition.secret_values import problem
from kpipe.definition.sink_options import check_header, check_url

__all__ = ["SourceHttp"]

_WAYS = ("after", "from_", "page", "offset", "next_link", "cursor")


class SourceHttp(Model):
    """A list of JSON objects as a source. One of `after`, `from`, `page`, `offset`, `next_link`, `cursor` names how to page.

    With `after` or `from`, a record's position is the value of `column`; otherwise its number in the list, from 0.

    Attributes:
        url: address of the list; https, except on this machine. Its path is part of each record's headers.
        records: members that lead to the list, such as `data.items`; empty: the response is the list.
        column: for `after` and `from`: member of each record, an integer that is unique and increases in the list.
        after: parameter with a value of the column: the server returns records with higher ones.
        from_: parameter with a value of the column: the server returns records with this one and higher ones (`from` in YAML).
        page: parameter with the number of a page; needs `page_size`.
        first_page: number of the first page.
        offset: parameter with the number of the first record; needs `page_size`.
        page_size: records of a full page, as `url` requests it.
        next_link: members that lead to the URL of the next page, or to an object with it in `href`; `Link`: the response's
            header of this name (RFC 8288).
        cursor: members that lead to the cursor of the next page, which `cursor_parameter` takes.
        cursor_parameter: parameter with the cursor.
        headers: headers of every request, without secrets: those are `credentials.header.NAME`.
        timeout_s: maximum time for one response.
        max_mb: maximum size of one response, in MiB.
        max_pages: most pages for the end of the list, or for one range of a batch.
        max_batch_rows: most positions of a batch.
        allow_hosts: names, or addresses, that may be in a private network, or on this machine.
    """

    url: str
    records: str = ""
    column: str | None = Field(default=None, min_length=1)
    after: str | None = Field(default=None, min_length=1)
    from_: str | None = Field(default=None, min_length=1, alias="from")
    page: str | None = Field(default=None, min_length=1)
    first_page: int = Field(default=1, ge=0)
    offset: str | None = Field(default=None, min_length=1)
    page_size: int | None = Field(default=None, ge=1, le=100_000)
    next_link: str | None = Field(default=None, min_length=1)
    cursor: str | None = Field(default=None, min_length=1)
    cursor_parameter: str | None = Field(default=None, min_length=1)
    headers: dict[str, str] = Field(default_factory=dict)
    timeout_s: float = Field(default=30, gt=0, le=600)
    max_mb: int = Field(default=16, ge=1, le=256)
    max_pages: int = Field(default=10_000, ge=1)
    max_batch_rows: int = Field(default=250_000, ge=1)
    allow_hosts: list[str] = Field(default_factory=list)

    @property
    def most_offsets(self) -> int:
        """Most offsets of one batch."""
        return self.max_batch_rows

    @property
    def name(self) -> str:
        """The address without parameters."""
        return self.url.partition("?")[0]

    @field_validator("url")
    @classmethod
    def _address(cls, value: str) -> str:
        try:
            check_url(value)
        except ValueError as error:
            raise ValueError(str(error).replace("into.", "source.")) from None
        found = problem(("source", "http", "url"), value)
        if found is not None or "..." in value:
            msg = (
                "names of Dagster's partitions cannot have '...'" if found is None else f"{found[0]}: set credentials.header.NAME"
            )
            raise ValueError(msg)
        return value

    @field_validator("headers")
    @classmethod
    def _headers(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            check_header(name, text)
            if problem(("source", "http", "headers", name), text) is not None:
                msg = f"{name}: may be a secret: set credentials.header.{name} to a reference"
                raise ValueError(msg)
        return value

    @model_validator(mode="after")
    def _fitting(self) -> SourceHttp:
        given = [name.rstrip("_") for name in _WAYS if getattr(self, name) is not None]
        needs = (
            (
                len(given) != 1,
                f"expected one of {', '.join(_WAYS).replace('from_', 'from')}, found {' and '.join(given) or 'none'}",
            ),
            ((self.column is None) == (given in (["after"], ["from"])), "column belongs to after and from, which need it"),
            (
                (self.page_size is None) == (given in (["page"], ["offset"])),
                "page_size belongs to page and offset, which need it",
            ),
            ((self.cursor is None) != (self.cursor_parameter is None), "cursor and cursor_parameter go together"),
        )
        for wrong, msg in needs:
            if wrong:
                raise ValueError(msg)
        self._check_parameter(given[0])
        return self

    def _check_parameter(self, way: str) -> None:
        """Check that `url` does not begin the list elsewhere by the parameter that requests set: only some would keep its value.

        A cursor is allowed: the first page alone is requested with it.
        """
        starts = {
            "after": (self.after, "0"),
            "from": (self.from_, "0"),
            "offset": (self.offset, "0"),
            "page": (self.page, str(self.first_page)),
        }
        name, start = starts.get(way, (None, ""))
        for key, value in parse_qsl(urlsplit(self.url).query, keep_blank_values=True):
            if key == name and value != start:
                msg = (
                    f"url: expected no parameter {name}, found {name}={value}: requests set it, as {way} names it;"
                    " to leave out records, set `where`"
                )
                raise ValueError(msg)
