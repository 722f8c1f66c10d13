"""Compile functions of bytes and digits: hashes, SOUNDEX, base 64, hexadecimal, and numbers in other bases.

Sources: MySQL 8.4 manual, "String Functions and Operators" and "Encryption and Compression Functions"; SingleStore's manual of
the same functions; ISO 3309 for CRC32.
"""

from __future__ import annotations

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.binding import bind_sql
from kpipe.expressions.mysql.function import Function
from kpipe.expressions.mysql.functions.text_arguments import whole, written_number
from kpipe.expressions.mysql.values import Value, bytes_of, number, reading, text

__all__ = ["FUNCTIONS"]

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TOP = 2**64
_NUMBERS = ("int", "decimal", "double", "bool")


def _sha2(value: Value, bits: Value) -> Value:
    """Compile SHA2: SHA-256 for 256 and 0; NULL for an invalid number of bits."""
    size = written_number(bits, "the length of SHA2")
    if size in (224, 384, 512):
        raise Untranslated(f"SHA2 with {size} bits is not supported", "write SHA2(value, 256)")
    return Value(f"sha256({bytes_of(value)})" if size in (0, 256) else "CAST(NULL AS VARCHAR)", "text")


def _crc_table() -> list[int]:
    made = []
    for code in range(256):
        for _ in range(8):
            code = (code >> 1) ^ (0xEDB88320 if code & 1 else 0)
        made.append(code)
    return made


def _crc32(value: Value) -> Value:
    """Compile CRC32, byte by byte over a table."""
    table = f"CAST({_crc_table()} AS BIGINT[])"

    def body(x: str) -> str:
        codes = (
            f"list_transform(range(octet_length({x})), lambda kpipe_i: CAST('0x' || hex({x}[kpipe_i + 1:kpipe_i + 1]) AS BIGINT))"
        )
        step = f"xor(kpipe_c >> 8, ({table})[xor(kpipe_c & 255, kpipe_b) + 1])"
        return f"xor(list_reduce({codes}, lambda kpipe_c, kpipe_b: {step}, 4294967295), 4294967295)"

    return Value(bind_sql(body, bytes_of(value)), "int", 10)


def _to_base64(value: Value) -> Value:
    """Compile TO_BASE64, in lines of 76 characters."""
    lines = f"regexp_replace(to_base64({bytes_of(value)}), '(.{{76}})', '\\1\n', 'g')"
    return Value(f"regexp_replace({lines}, '\\n$', '')", "text")


def _from_base64(value: Value) -> Value:
    """Compile FROM_BASE64: white space is skipped; NULL for invalid base 64."""
    plain = f"regexp_replace({reading(value)}, '[ \\t\\n\\r\\v\\f]', '', 'g')"
    return Value(f"TRY(from_base64({plain}))", "blob")


def _hex(value: Value) -> Value:
    """Compile HEX: the 64 bits of a number, rounded; the bytes of any other value."""
    if value.kind not in _NUMBERS:
        return Value(f"hex({bytes_of(value)})", "text")
    return Value(f"hex({_bits_of(value)})", "text")


def _bits_of(value: Value) -> str:
    """Return a number as BIGINT with the same 64 bits; all bits are set for a number out of range."""
    beyond = f"WHEN {{0}} >= {_TOP} OR {{0}} < -{_TOP // 2} THEN -1"
    large = f"WHEN {{0}} >= {_TOP // 2} THEN {{0}} - {_TOP}"
    body = f"CAST(CASE {beyond} {large} ELSE {{0}} END AS BIGINT)"
    if value.kind == "decimal" and not value.scale:
        return bind_sql(body.format, f"CAST({value.sql} AS HUGEINT)")
    if value.kind == "double":  # half away from zero, unlike CAST
        near = "CAST(round(CASE WHEN {0} > 1e20 THEN 1e20 WHEN {0} < -1e20 THEN -1e20 ELSE {0} END) AS HUGEINT)"
        return bind_sql(body.format, near.format(value.sql))
    return whole(value if value.kind != "bool" else number(value))


def _unhex(value: Value) -> Value:
    """Compile UNHEX: an odd number of digits is padded with a leading 0; NULL for other characters."""
    return Value(
        bind_sql(lambda x: f"TRY(unhex(CASE WHEN strlen({x}) % 2 = 1 THEN '0' || {x} ELSE {x} END))", reading(value)), "blob"
    )


def _conv(value: Value, source: Value, target: Value) -> Value:
    """Compile CONV: an unsigned 64-bit number in another base; signed if a base is negative.

    NULL for a base outside of 2 to 36, and for an empty text.
    """
    of, to = (written_number(base, "a base of CONV") for base in (source, target))
    if not (2 <= abs(of) <= 36 and 2 <= abs(to) <= 36):
        return Value("CAST(NULL AS VARCHAR)", "text")
    return _converted(reading(value), of, to)


def _converted(said: str, of: int, to: int) -> Value:
    digits = _DIGITS[: abs(of)]
    read = f"regexp_extract(upper({{0}}), '^[ \\t\\n\\v\\f\\r]*([+-]?)([{digits}]*)', ['sign', 'digits'])"

    def amount(parts: str) -> str:
        """Return the number, at most 2^64, which means out of range."""
        if abs(of) == 10:
            cut = f"regexp_extract({parts}.digits, '^0*([0-9]{{0,21}})', 1)"
            return f"least(coalesce(TRY_CAST({cut} AS HUGEINT), 0), {_TOP})"
        codes = (
            f"list_transform(string_split({parts}.digits, ''), lambda kpipe_d: CAST(instr('{digits}', kpipe_d) - 1 AS HUGEINT))"
        )
        joined = (
            f"list_reduce({codes}, lambda kpipe_n, kpipe_d: least(kpipe_n * {abs(of)} + kpipe_d, {_TOP}), CAST(0 AS HUGEINT))"
        )
        return f"(CASE WHEN {parts}.digits = '' THEN 0 ELSE {joined} END)"

    def signed(parts: str, n: str) -> str:
        """Return a negative number as the unsigned number with the same 64 bits."""
        most, least = (_TOP - 1, _TOP - 1) if of > 0 else (_TOP // 2 - 1, _TOP // 2)
        minus = f"CASE WHEN {n} > {least} THEN {least if of < 0 else 1} ELSE {n} END"
        plus = f"CASE WHEN {n} > {most} THEN {most} ELSE {n} END"
        return f"(CASE WHEN {parts}.sign = '-' AND {n} > 0 THEN {_TOP} - ({minus}) ELSE {plus} END)"

    def written(n: str) -> str:
        """Print the number in two parts, because DuckDB's to_base is limited to 63 bits."""
        base = abs(to)
        first = f"CASE WHEN {{0}} < {base} THEN '' ELSE to_base(CAST({{0}} // {base} AS BIGINT), {base}) END"
        plain = f"({first} || to_base(CAST({{0}} % {base} AS BIGINT), {base}))"
        if to > 0:
            return plain.format(n)
        return f"(CASE WHEN {n} >= {_TOP // 2} THEN '-' || {plain.format(f'({_TOP} - {n})')} ELSE {plain.format(n)} END)"

    def of_text(x: str) -> str:
        bits = bind_sql(lambda parts: bind_sql(lambda n: signed(parts, n), amount(parts)), read.format(x))
        return f"(CASE WHEN {x} <> '' THEN {bind_sql(written, bits)} END)"

    return Value(bind_sql(of_text, said), "text")


def _code(value: Value) -> Value:
    """Compile ASCII: the first byte; 0 for an empty text."""
    body = "(CASE WHEN octet_length({0}) = 0 THEN 0 ELSE CAST('0x' || hex({0}[1:1]) AS BIGINT) END)"
    return Value(bind_sql(body.format, bytes_of(value)), "int", 3)


def _ord(value: Value) -> Value:
    """Compile ORD: the bytes of the first character as one number."""
    if value.kind == "blob":
        return _code(value)
    body = "(CASE WHEN {0} = '' THEN 0 ELSE CAST('0x' || hex(encode(left({0}, 1))) AS BIGINT) END)"
    return Value(bind_sql(body.format, text(value).sql), "int", 10)


_SOUNDS = {"1": "BFPV", "2": "CGJKQSXZ", "3": "DT", "4": "L", "5": "MN", "6": "R"}
_SOUNDING = "".join(_SOUNDS.values())
_SILENT = "AEHIOUWY"


def _soundex(value: Value) -> Value:
    """Compile SOUNDEX: the first letter, then a digit for each consonant that differs from the last; any length, as in MySQL."""
    every = f"{_SOUNDING}{_SOUNDING.lower()}{_SILENT}{_SILENT.lower()}"
    digits = "".join(digit * len(letters) for digit, letters in _SOUNDS.items()) * 2

    def body(x: str) -> str:
        codes = f"translate(regexp_replace({x}, '[^A-Za-z]', '', 'g'), '{every}', '{digits}')"
        for digit in _SOUNDS:
            codes = f"regexp_replace({codes}, '{digit}+', '{digit}', 'g')"
        first = f"regexp_extract({x}, '[A-Za-z\\x{{C0}}-\\x{{10FFFF}}]')"
        return bind_sql(joined, first, codes)

    def joined(first: str, codes: str) -> str:
        letter = f"CASE WHEN regexp_matches({first}, '[a-z]') THEN upper({first}) ELSE {first} END"
        behind = f"CASE WHEN contains('{_SOUNDING}{_SOUNDING.lower()}', {first}) THEN substring({codes}, 2) ELSE {codes} END"
        made = f"({letter}) || ({behind})"
        return f"(CASE WHEN {first} = '' THEN '' ELSE rpad({made}, greatest(4, CAST(length({made}) AS INTEGER)), '0') END)"

    return Value(bind_sql(body, text(value).sql), "text")


FUNCTIONS: dict[str, Function] = {
    "MD5": Function(lambda value: Value(f"md5({bytes_of(value)})", "text"), 1),
    **dict.fromkeys(("SHA", "SHA1"), Function(lambda value: Value(f"sha1({bytes_of(value)})", "text"), 1)),
    "SHA2": Function(_sha2, 2),
    "CRC32": Function(_crc32, 1),
    "SOUNDEX": Function(_soundex, 1),
    "TO_BASE64": Function(_to_base64, 1),
    "FROM_BASE64": Function(_from_base64, 1),
    "HEX": Function(_hex, 1),
    "UNHEX": Function(_unhex, 1),
    "CONV": Function(_conv, 3),
    "BIN": Function(lambda value: _converted(reading(value), 10, 2), 1),
    "OCT": Function(lambda value: _converted(reading(value), 10, 8), 1),
    "ASCII": Function(_code, 1),
    "ORD": Function(_ord, 1),
}
