"""Compute exact values of numerals. DuckDB 2.0's casts are inexact for two kinds of them, which in_memory.py passes here.

A DECIMAL loses digits of a numeral with an exponent: '0.0000505545e5' becomes 0 in a DECIMAL(4,0), and '276.0550e2' becomes
27600. A DOUBLE is wrong if an exponent of more than 655,359 offsets as many digits of the fraction.
"""

from __future__ import annotations

import re

__all__ = ["LONGEST", "PLAIN", "at_scale", "extent", "fixed", "real", "whole"]

#: Bytes up to which DuckDB's cast to DOUBLE is exact: its exponents saturate far beyond that many digits.
LONGEST = 65_535
#: Bytes up to which its cast of a numeral without exponent to DECIMAL is exact.
PLAIN = 40

_NUMERAL = re.compile(r"\s*([+-]?)(?:([0-9]+)\.?([0-9]*)|\.([0-9]+))(?:[eE]([+-]?)([0-9]+))?\s*", re.ASCII)
# Digits of an exponent: a larger one exceeds the number of digits of any text.
_MOST = 18


def _parsed(text: str) -> tuple[str, str, int] | None:
    """Return sign, digits without leading zeros, and the position of the point relative to the first; None for other text."""
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
    """Print a numeral without exponent, with one digit more than the scale, which determines how it is rounded.

    Args:
        text: the numeral, in JSON's or SQL's syntax.
        scale: number of decimal places.

    Returns:
        The numeral; empty if the text is not a numeral, or out of range for every DECIMAL.
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
    """Print the DOUBLE that is nearest to a numeral in the shortest form; empty for other text."""
    return repr(float(text)) if _NUMERAL.fullmatch(text) else ""


def extent(text: str) -> tuple[int, int, int]:
    """Measure a numeral of JSON or SQL.

    Returns:
        Number of integer digits, without leading zeros; number of decimal places, as written; the exponent, up to 10**18.

    Raises:
        ValueError: the text is not a numeral.
    """
    found, parsed = _NUMERAL.fullmatch(text), _parsed(text)
    if found is None or parsed is None:
        raise ValueError(text)
    _, digits, point = parsed
    fraction = len(found[3] or found[4] or "")
    exponent = point - len(digits) + fraction
    return max(point, 0) if digits else 0, max(fraction - exponent, 0), exponent


def at_scale(text: str, scale: int) -> bool:
    """Return whether a numeral has so many decimal places at most, without zeros at the end; false for other text."""
    found = _parsed(text)
    return found is not None and len(found[1].rstrip("0")) - found[2] <= scale


def whole(text: str, most: int) -> int | None:
    """Return the integer that a numeral is exactly; None if it has a fraction, or more digits than `most`."""
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
