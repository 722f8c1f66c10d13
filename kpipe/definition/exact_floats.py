"""Read numbers of definitions as floats, only if the float has all of their digits."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

__all__ = ["HINT", "exact_float"]

HINT = "write it in quotes"


def exact_float(text: str) -> float:
    """Return a decimal number as a float that is printed with the same value.

    Raises:
        ValueError: the float differs, or the text is not a number.
    """
    value = float(text)
    try:
        same = Decimal(text) == Decimal(repr(value))
    except InvalidOperation:  # an exponent beyond every float
        same = False
    if not same:
        raise ValueError(f"{text[:40]}: the number has more digits than a float can have")
    return value
