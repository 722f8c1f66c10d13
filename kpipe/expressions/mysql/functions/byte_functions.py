"""Compile functions of binary strings: IPv6 addresses, UUIDs as bytes, compressed texts.

Sources: MySQL 8.4 manual, "Miscellaneous Functions", "Encryption and Compression Functions".
"""

from __future__ import annotations

from kpipe.expressions.mysql.binding import bind_sql
from kpipe.expressions.mysql.function import Function
from kpipe.expressions.mysql.functions.text_arguments import asked, digits_of
from kpipe.expressions.mysql.values import Value, boolean, reading, text

__all__ = ["FUNCTIONS"]

_NO_BYTES = "error('BIN_TO_UUID: not a UUID: expected 16 bytes')"
_UUID = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_FORMS = rf"^([0-9a-fA-F]{{32}}|{_UUID}|\{{{_UUID}\}})$"


def _address(value: Value) -> str:
    return asked("address", reading(value))


def _is_ipv6(value: Value) -> Value:
    return Value(f"(coalesce(length({_address(value)}), 0) = 32)", "bool")


def _of_address(pattern: str, above: str = "") -> Function:
    """Compile a test of 16 bytes: the hexadecimal digits match and the group exceeds a limit. False for other values and NULL."""

    def rule(value: Value) -> Value:
        if value.kind != "blob":
            return Value("false", "bool")
        return Value(f"coalesce(regexp_extract({digits_of(value)}, '^{pattern}$', 1) > '{above}', false)", "bool")

    return Function(rule, 1)


def _address_text(value: Value) -> Value:
    if value.kind != "blob":
        return Value("CAST(NULL AS VARCHAR)", "text")
    return Value(asked("address_text", digits_of(value)), "text")


def _uuid_to_bin(value: Value, swapped: Value | None = None) -> Value:
    """Compile UUID_TO_BIN, which fails at run time for an invalid UUID. A true second argument swaps the time parts."""

    def checked(said: str) -> str:
        digits = f"regexp_replace({said}, '[{{}}-]', '', 'g')"
        read = f"CASE WHEN regexp_matches({said}, '{_FORMS}') THEN {digits} ELSE 'no UUID: ' || {said} END"
        return f"(CASE WHEN {said} IS NOT NULL THEN {read} END)"

    moved = "substr({0}, 13, 4) || substr({0}, 9, 4) || substr({0}, 1, 8) || substr({0}, 17)"
    return Value(f"unhex({_swapped(bind_sql(checked, text(value).sql), moved, swapped)})", "blob")


def _bin_to_uuid(value: Value, swapped: Value | None = None) -> Value:
    """Compile BIN_TO_UUID, which fails at run time for other than 16 bytes."""
    moved = "substr({0}, 9, 8) || substr({0}, 5, 4) || substr({0}, 1, 4) || substr({0}, 17)"
    checked = f"CASE WHEN {{0}} IS NULL OR length({{0}}) = 32 THEN lower({{0}}) ELSE {_NO_BYTES} END"
    digits = _swapped(bind_sql(checked.format, digits_of(value)), moved, swapped)
    return Value(f"regexp_replace({digits}, '^(.{{8}})(.{{4}})(.{{4}})(.{{4}})', '\\1-\\2-\\3-\\4-')", "text")


def _swapped(digits: str, moved: str, swapped: Value | None) -> str:
    if swapped is None:
        return digits
    test = boolean(swapped).sql
    return bind_sql(lambda said: f"(CASE WHEN {test} THEN {moved.format(said)} ELSE {said} END)", digits)


FUNCTIONS: dict[str, Function] = {
    "INET6_ATON": Function(lambda value: Value(f"unhex({_address(value)})", "blob"), 1),
    "INET6_NTOA": Function(_address_text, 1),
    "IS_IPV6": Function(_is_ipv6, 1),
    "IS_IPV4_COMPAT": _of_address("0{24}([0-9A-F]{8})", "00000001"),
    "IS_IPV4_MAPPED": _of_address("0{20}(FFFF)[0-9A-F]{8}"),
    "UUID_TO_BIN": Function(_uuid_to_bin, 1, 2),
    "BIN_TO_UUID": Function(_bin_to_uuid, 1, 2),
    "COMPRESS": Function(lambda value: Value(f"unhex({asked('compress', digits_of(value))})", "blob"), 1),
    "UNCOMPRESS": Function(lambda value: Value(f"unhex({asked('uncompress', digits_of(value))})", "blob"), 1),
    "UNCOMPRESSED_LENGTH": Function(
        lambda value: Value(f"CAST({asked('uncompressed_length', digits_of(value))} AS BIGINT)", "int", 10), 1
    ),
}
