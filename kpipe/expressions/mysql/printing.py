"""Print numbers as MySQL does; compared with a server in tests/kpipe/expressions/mysql/."""

from __future__ import annotations

__all__ = ["printed"]


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
