"""Divide JSON records into objects, each of which becomes a row: values one after another, and the items of lists.

A record is divided as text, so that the decoders of objects need no other rules: an object is the record's text with one item
in place of its list. So types, reasons, paths and limits are those of records of one object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from kpipe.definition.formats import Format, Mapped
from kpipe.definition.json_path import parse_path
from resources.decode.block import Decoded, Decoder, Payloads, TooManyRows
from resources.decode.growth_guard import joined
from resources.decode.json.blocks import too_deep
from resources.decode.json.rows import Reject, load
from resources.decode.repeated import MOST_CELLS

__all__ = ["DividedDecoder", "Division", "items"]

# Limit of a record's objects in characters: each has the other members of the record, which may be as large as the list.
_MOST_TEXT = 1 << 26
# Objects that are decoded together. More of them would take memory, but no less time.
_BLOCK_TEXT = 1 << 25
# Characters of objects from which columns are inferred for a table that does not exist yet.
_SAMPLE_TEXT = 1 << 23
_SPACE = re.compile(r"[ \t\r\n]*")
# Numbers are kept as text: only the end of a value is of interest, and a number may have millions of digits.
_SCAN = json.JSONDecoder(parse_int=str, parse_float=str)

Needed = frozenset[str | int] | None


class Division:
    """The rule by which a format divides a record.

    Args:
        kind: the format.
    """

    def __init__(self, kind: Format) -> None:
        self._many, self._outer = kind.documents == "many", kind.explode_outer
        self._number = None if kind.ordinality is None else json.dumps(kind.ordinality)
        self._steps = None if kind.explode is None else parse_path(kind.explode)
        paths = None if kind.mapping is None else list(map(_path, kind.mapping.values()))
        #: For each object on the way to the list: the members that the format reads; None: all.
        self._needed = [_needed(paths, (self._steps or ())[:depth]) for depth in range(len(self._steps or ()))]

    def good(self, payloads: Sequence[bytes]) -> Iterator[list[bytes]]:
        """Yield the objects of each record, up to a number of characters; invalid records are left out."""
        left = _SAMPLE_TEXT
        for payload in payloads:
            try:
                found = self.objects(payload)
            except Reject:
                continue
            sizes = np.cumsum(np.fromiter(map(len, found), np.int64, len(found)))
            yield found[: int(np.searchsorted(sizes, left)) + 1]
            left -= int(sizes[-1]) if found else 0
            if left <= 0:
                return

    def objects(self, payload: bytes) -> list[bytes]:
        """Return the objects of a record. Those after the first of an object lack members that the format does not read.

        Raises:
            Reject: not UTF-8, not JSON, nested too deeply, not of the expected shape, or too large in all.
        """
        if too_deep(payload):
            raise Reject("not JSON: nested too deeply")
        try:
            texts = self._texts(payload.decode("utf-8"))
            if self._number is not None:
                texts = [_numbered(text, self._number, at) for at, text in enumerate(texts, 1)]
                if sum(map(len, texts)) > _MOST_TEXT:
                    raise _large(len(texts))
            return [text.encode() for text in texts]
        except UnicodeDecodeError as error:
            raise Reject(f"not UTF-8 at byte {error.start}") from error
        except json.JSONDecodeError as error:
            raise Reject(f"not JSON: {error.msg.removesuffix(' at')} at character {error.pos}") from error
        except RecursionError as error:
            raise Reject("not JSON: nested too deeply") from error

    def _texts(self, text: str) -> list[str]:
        found: list[str] = []
        size, at = 0, _skip(text, 0)
        while at < len(text) or not (self._many or found):
            texts, end, whole = self._root(text, at)
            if not whole:  # no object has the text of what was left out: check it here
                load(b'{"v":' + text[at:end].encode() + b"}")
            found += texts
            size += sum(map(len, texts))
            if size > _MOST_TEXT:
                raise _large(len(found))
            at = _skip(text, end)
            if not self._many:
                break
        if at < len(text):
            raise json.JSONDecodeError("Extra data", text, at)
        return found

    def _root(self, text: str, at: int) -> tuple[list[str], int, bool]:
        if self._steps is None:
            end = _end(text, at)
            return [text[at:end]], end, True
        if not self._steps and text[at : at + 1] != "[":
            end = _end(text, at)
            raise Reject(f"not a list but {_named(text[at:end])}")
        return self._value(text, at, 0)

    def _value(self, text: str, at: int, depth: int) -> tuple[list[str], int, bool]:
        """Return the texts that take the place of a value, its end, and whether they have all of its text."""
        assert self._steps is not None
        opening = text[at : at + 1]
        if opening == "[":
            return self._list(text, at, depth)
        if depth < len(self._steps) and opening == "{":
            return self._object(text, at, depth)
        end = _end(text, at)
        if text[at:end] == "null" and depth:
            return [], end, True
        if not depth:
            raise Reject(f"not a JSON object but {_named(text[at:end])}")
        where = "::".join(map(str, self._steps[:depth]))
        raise Reject(f"{where[:40]}: {_named(text[at:end])} is not {'an object' if depth < len(self._steps) else 'a list'}")

    def _list(self, text: str, at: int, depth: int) -> tuple[list[str], int, bool]:
        assert self._steps is not None
        found: list[str] = []
        whole, size, at = True, 0, _skip(text, at + 1)
        if text[at : at + 1] == "]":
            return found, at + 1, True
        while True:
            if depth == len(self._steps):
                end = _end(text, at)
                found.append(text[at:end])
            else:
                texts, end, complete = self._value(text, at, depth)
                whole = whole and complete and bool(texts)
                if self._outer and not texts:
                    texts = ["null"]
                found += texts
                size += sum(map(len, texts))
                if size > _MOST_TEXT:
                    raise _large(len(found))
            at = _skip(text, end)
            sign = text[at : at + 1]
            if sign == "]":
                return found, at + 1, whole
            if sign != ",":
                raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
            at = _skip(text, at + 1)

    def _object(self, text: str, at: int, depth: int) -> tuple[list[str], int, bool]:
        """Return the object once for each text that takes the place of its member on the way; once without any."""
        assert self._steps is not None
        start, step, needed = at, self._steps[depth], self._needed[depth]
        place: tuple[int, int, int] | None = None  # of the member on the way: its name, its value, its end
        inner: list[str] = []
        whole = True
        members: list[tuple[int, int]] = []  # those that later objects have, too
        at = _skip(text, at + 1)
        begun = more = text[at : at + 1] != "}"
        while more:
            begin = at
            name, at = _name(text, at)
            if name == step:
                if place is not None:
                    raise Reject(f"duplicate member {name[:40]}")
                inner, end, whole = self._value(text, at, depth + 1)
                place = begin, at, end
            else:
                end = _end(text, at)
                if needed is None or name in needed:
                    members.append((begin, end))
            at = _skip(text, end)
            more = text[at : at + 1] == ","
            if more:
                at = _skip(text, at + 1)
            elif text[at : at + 1] != "}":
                raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
        end = at + 1
        if place is None:
            null = ("," if begun else "") + json.dumps(step) + ":null}"
            return ([text[start:at] + null], end, True) if self._outer else ([], end, False)
        before, after = text[start : place[1]], text[place[2] : end]
        if not inner:
            return ([before + "null" + after], end, whole) if self._outer else ([], end, False)
        rest, close = before, after
        if needed is not None:
            rest = "{" + "".join(text[one:other] + "," for one, other in members) + text[place[0] : place[1]]
            close = "}"
        size = len(rest) + len(close)
        if size * len(inner) + sum(map(len, inner)) > _MOST_TEXT:
            raise _large(len(inner))
        return [before + inner[0] + after, *(rest + item + close for item in inner[1:])], end, whole


def items(text: str) -> list[str]:
    """Return the items of a JSON list as they are written: numbers keep all digits.

    Raises:
        ValueError: it is not one list.
        RecursionError: an item is nested too deeply.
    """
    if not text.startswith("["):
        raise json.JSONDecodeError("Expecting a list", text, 0)
    found, end, _ = Division(Format(explode="%"))._list(text, 0, 0)
    if (rest := _skip(text, end)) < len(text):
        raise json.JSONDecodeError("Extra data", text, rest)
    return found


def _path(item: str | Mapped) -> tuple[str | int, ...]:
    return parse_path(item.path if isinstance(item, Mapped) else item)


def _needed(paths: list[tuple[str | int, ...]] | None, way: tuple[str | int, ...]) -> Needed:
    """Return the members of the object at `way` that the paths read; None: all."""
    if paths is None or any(parts == way[: len(parts)] for parts in paths):
        return None
    return frozenset(parts[len(way)] for parts in paths if parts[: len(way)] == way)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _end(text: str, at: int) -> int:
    return _SCAN.raw_decode(text, at)[1]


def _name(text: str, at: int) -> tuple[str, int]:
    """Return a member's name, and the position of its value."""
    if text[at : at + 1] != '"':
        raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
    name, end = _SCAN.raw_decode(text, at)
    end = _skip(text, end)
    if text[end : end + 1] != ":":
        raise json.JSONDecodeError("Expecting ':' delimiter", text, end)
    return name, _skip(text, end + 1)


def _numbered(text: str, name: str, number: int) -> str:
    """Return an object with another member; what is not an object is returned unchanged."""
    if not text.startswith("{"):
        return text
    return f"{{{name}:{number}" + ("" if text.startswith("}", _skip(text, 1)) else ",") + text[1:]


def _named(text: str) -> str:
    return {"{": "an object", "[": "a list"}.get(text[0], text if len(text) <= 40 else text[:40] + "...")


def _large(count: int) -> Reject:
    return Reject(
        f"explode: {count:,} items or more have over {_MOST_TEXT:,} characters with the record's other members:"
        " list the members that you need in format.mapping, without the large ones"
    )


class DividedDecoder:
    """Decodes the objects of records. If one object of a record is a reject, the whole record is.

    Args:
        division: the rule.
        inner: decoder of objects, without limits on new columns: those count for a record, not for an object.
        width: number of columns and members of a row.
    """

    takes_nulls = False

    def __init__(self, division: Division, inner: Decoder, width: int = 1) -> None:
        self._division, self._inner, self._most = division, inner, MOST_CELLS // max(1, width)

    def decode(self, payloads: Payloads, keys: pa.Array | None = None) -> Decoded:
        """See `Decoder`."""
        rejects: list[tuple[int, str]] = []
        parts: list[tuple[int, int, Decoded]] = []
        objects: list[bytes] = []
        owners: list[int] = []
        size = text = rows = 0
        for at, payload in enumerate(payloads.values):
            try:
                found = self._division.objects(payload)
                if len(found) > self._most:
                    raise Reject(
                        f"{len(found):,} rows are too many for the columns of the table: expected {self._most:,} at most"
                    )
            except Reject as error:
                rejects.append((at, str(error)))
                continue
            more = sum(map(len, found))
            size, text, rows = size + more, text + more, rows + len(found)
            if len(payloads) > 1 and (text > _MOST_TEXT or rows > self._most):
                raise TooManyRows
            objects += found
            owners += repeat(at, len(found))
            if size > _BLOCK_TEXT:
                parts.append((0, 0, self._block(objects, np.array(owners, np.int64), rejects)))
                objects, owners, size = [], [], 0
        if objects or not parts:
            parts.append((0, 0, self._block(objects, np.array(owners, np.int64), rejects)))
        whole = joined(parts)
        each = list(range(len(payloads)))
        kept = None if whole.kept == each else whole.kept
        return Decoded(whole.table, whole.rows, kept, sorted(rejects), whole.new_columns)

    def _block(self, objects: list[bytes], owners: np.ndarray[Any, Any], rejects: list[tuple[int, str]]) -> Decoded:
        """Decode the objects of some records, and add the records that are rejects."""
        part = self._inner.decode(Payloads.of(objects))
        while part.rejects:
            bad: dict[int, str] = {}
            for at, why in part.rejects:
                owner = int(owners[at])
                first, last = np.searchsorted(owners, owner, "left"), np.searchsorted(owners, owner, "right")
                bad.setdefault(owner, f"row {at - first + 1}: {why}" if last - first > 1 else why)
            rejects += bad.items()
            # Decoded again, as other objects of these records may have brought new columns.
            stay = np.flatnonzero(~np.isin(owners, list(bad)))
            others = len(stay) + len(part.rejects) != len(owners)
            if not others:
                kept = np.arange(len(owners))[stay] if part.kept is None else np.asarray(part.kept, np.int64)
                return Decoded(part.table, part.rows, owners[kept].tolist(), (), part.new_columns)
            objects, owners = [objects[at] for at in stay.tolist()], owners[stay]
            part = self._inner.decode(Payloads.of(objects))
        kept = owners if part.kept is None else owners[np.asarray(part.kept, np.int64)]
        return Decoded(part.table, part.rows, kept.tolist(), (), part.new_columns)
