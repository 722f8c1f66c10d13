"""Print numbers as MySQL does; compared with a server in tests/kpipe/expressions/mysql/."""

from __future__ import annotations

from kpipe.expressions.mysql.binding import bind_sql

__all__ = ["numeral", "printed"]


def numeral(sql: str) -> str:
    """Return a DOUBLE in its shortest digits and without exponent: text that DuckDB casts to a DECIMAL exactly.

    On the server, too, a DOUBLE becomes a DECIMAL through this text: 1.005 rounds to 1.01. DuckDB's own cast multiplies by a
    power of ten, which rounds 1.005 to 1.00 and appends digits that the number does not have.
    """

    def plain(v: str) -> str:
        written = f"CAST({v} AS VARCHAR)"  # from 1e-4 to below 1e16 without exponent
        figures = rf"regexp_extract({written}, '^(-?)(\d)\.?(\d*)e[-+](\d+)$', ['minus', 'one', 'further', 'power'])"
        power = f"CAST({figures}.power AS INTEGER)"
        large = f"{figures}.one || rpad({figures}.further, {power}, '0')"  # at most 16 further digits
        small = f"'0.' || repeat('0', {power} - 1) || {figures}.one || {figures}.further"
        forms = f"WHEN contains({written}, 'e+') THEN {figures}.minus || {large} "
        forms += f"WHEN contains({written}, 'e-') THEN {figures}.minus || {small} ELSE {written}"
        return f"(CASE {forms} END)"

    return bind_sql(plain, sql)


def printed(sql: str, digits: int | None, single: bool = False) -> str:
    """Return a DOUBLE as MySQL prints it: all digits from 1e-15 to below 1e15; no `.0`, no `+` in an exponent, no -0.

    Args:
        sql: the DOUBLE.
        digits: number of decimal places; None: as many as it has.
        single: whether it is a FLOAT, which has fewer.
    """
    if single:
        sql = f"CAST(CAST(CAST({sql} AS FLOAT) AS VARCHAR) AS DOUBLE)"
    if digits is not None:
        fixed = f"regexp_replace(format('{{:.{digits}f}}', v), '^-(0(\\.0*)?)$', '\\1')"
        figures = "regexp_extract(CAST(v AS VARCHAR), '^(-?)(\\d)\\.?(\\d*)e\\+(\\d+)$', ['minus', 'one', 'further', 'zeros'])"
        large = f"{figures}.minus || {figures}.one || rpad({figures}.further, CAST({figures}.zeros AS INTEGER), '0')"
        point = f" || '.{'0' * digits}'" if digits else ""
        # After its shortest digits, a DOUBLE is padded with zeros, as on the server.
        few = (
            f"abs(v) >= 1e{15 - digits} AND regexp_matches(CAST(v AS VARCHAR), '^-?\\d+\\.\\d{{1,{digits}}}$')"
            if digits
            else "false"
        )
        padded = f"rpad(CAST(v AS VARCHAR), CAST(instr(CAST(v AS VARCHAR), '.') + {digits} AS INTEGER), '0')"
        forms = f"WHEN abs(v) >= 1e16 THEN {large}{point} WHEN {few} THEN {padded} ELSE {fixed}"
        return f"list_transform([{sql}], lambda v: CASE {forms} END)[1]"
    written = "CAST(v AS VARCHAR)"
    figures = "rtrim(regexp_replace(regexp_replace(CAST(abs(v) AS VARCHAR), 'e.*', ''), '\\.', ''), '0')"
    places = "CAST(regexp_extract(CAST(v AS VARCHAR), 'e-(\\d+)', 1) AS INTEGER)"
    forms = (
        f"WHEN v = trunc(v) AND abs(v) < 1e15 THEN CAST(CAST(v AS BIGINT) AS VARCHAR) "
        f"WHEN v = trunc(v) AND abs(v) < 1e16 THEN (CASE WHEN v < 0 THEN '-' ELSE '' END) || "
        f"regexp_replace({figures}, '^(.)(.+)$', '\\1.\\2') || 'e15' "
        f"WHEN abs(v) >= 1e-15 AND abs(v) < 1e-4 THEN (CASE WHEN v < 0 THEN '-0.' ELSE '0.' END) || "
        f"repeat('0', {places} - 1) || {figures} "
        f"ELSE regexp_replace(regexp_replace({written}, 'e\\+?(-?)0*', 'e\\1'), '\\.0(e|$)', '\\1')"
    )
    return f"list_transform([{sql}], lambda v: CASE {forms} END)[1]"
