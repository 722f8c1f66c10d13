"""Numerals as exact values. DuckDB 2.0's casts are inexact for two kinds of them, which `engine` sends here instead.

A DECIMAL loses digits of a numeral with an exponent: '0.0000505545e5' becomes 0 in a DECIMAL(4,0), and '276.0550e2' becomes
27600. A DOUBLE is wrong where an exponent of more than 655,359 makes up for as many digits of the fraction.
"""

from __future__ import annotations

import re

__all__ = ["LONGEST", "PLAIN", "extent", "fixed", "real", "whole"]

#: Bytes up to which DuckDB's cast to DOUBLE is exact: its exponents saturate far beyond that many digits.
LONGEST = 65_535
#: Bytes up to which its cast of a numeral without exponent to DECIMAL is exact.
PLAIN = 40

_NUMERAL = re.compile(r"\s*([+-]?)(?:([0-9]+)\.?([0-9]*)|\.([0-9]+))(?:[eE]([+-]?)([0-9]+))?\s*", re.ASCII)
# Digits of an exponent: more than this is beyond any number of digits that a text can have.
_MOST = 18


def _parsed(text: str) -> tuple[str, str, int] | None:
    """Sign, digits without leading zeros, and the place of the point relative to the first; None for other text."""
    found = _NUMERAL.fullmatch(text)
    if found is None:
        return None
    sign, integer, fraction, only, minus, power = found.groups(default="")
    fraction, power = fraction or only, power.lstrip("0") or "0"
    exponent = int(power) if len(power) <= _MOST else 10**_MOST
    digits = (integer + fraction).lstrip("0")
    point = len(digits) - len(fraction) + (-exponent if minus == "-" else exponent)
    return sign, digits, point


def fixed(text: str, scale: int) -> str:
    """Write a numeral without exponent, with one digit more than the scale, which decides how it is rounded.

    Args:
        text: the numeral, as JSON or SQL write it.
        scale: digits behind the point.

    Returns:
        The numeral; empty for a text that is none, or whose value is beyond every DECIMAL.
    """
    found = _parsed(text)
    if found is None:
        return ""
    sign, digits, point = found
    if not digits or point < -scale:
        return "0"
    if point > PLAIN:
        return ""
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits[: scale + 1 + point]}"
    return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point : point + scale + 1]}"


def real(text: str) -> str:
    """Write the nearest DOUBLE to a numeral as short as it can be; empty for other text."""
    return repr(float(text)) if _NUMERAL.fullmatch(text) else ""


def extent(text: str) -> tuple[int, int, int]:
    """Measure a numeral that JSON or SQL writes.

    Returns:
        Digits before the point, without leading zeros; digits behind it, as they are written out; the exponent, up to 10**18.

    Raises:
        ValueError: the text is none.
    """
    found, parsed = _NUMERAL.fullmatch(text), _parsed(text)
    if found is None or parsed is None:
        raise ValueError(text)
    _, digits, point = parsed
    fraction = len(found[3] or found[4] or "")
    exponent = point - len(digits) + fraction
    return max(point, 0) if digits else 0, max(fraction - exponent, 0), exponent


def whole(text: str, most: int) -> int | None:
    """The whole number that a numeral is exactly; None where it has a fraction, or more digits than `most`."""
    found = _parsed(text)
    if found is None:
        return None
    sign, digits, point = found
    digits = digits.rstrip("0")
    if not digits:
        return 0
    if not len(digits) <= point <= most:
        return None
    return int(f"{sign}{digits.ljust(point, '0')}")
