"""Functions of dates and times that are rejected by name, each with the reason and an alternative."""

from __future__ import annotations

__all__ = ["TIMES"]

# Functions of other databases, and of MySQL without a meaning in kpipe.
TIMES: dict[str, tuple[str, str]] = {
    "DATE_DIFF": ("it is not a function of MySQL", "write DATEDIFF(later, earlier), or TIMESTAMPDIFF(SECOND, earlier, later)"),
    "DATE_PART": ("it is not a function of MySQL", "write EXTRACT(YEAR FROM value)"),
    "DATEPART": ("it is not a function of MySQL", "write EXTRACT(YEAR FROM value)"),
    "DATEADD": ("it is not a function of MySQL", "write DATE_ADD(value, INTERVAL 3 DAY)"),
    "DATE_FROM_PARTS": ("it is not a function of MySQL", "write MAKEDATE(year, 1) + INTERVAL month - 1 MONTH"),
    "MAKE_DATE": ("it is not a function of MySQL", "write MAKEDATE(year, day)"),
    "MAKE_TIMESTAMP": ("it is not a function of MySQL", "write TIMESTAMP(date, time)"),
    "STRFTIME": ("it is not a function of MySQL", "write DATE_FORMAT(value, '%Y-%m-%d')"),
    "STRPTIME": ("it is not a function of MySQL", "write STR_TO_DATE(value, '%Y-%m-%d')"),
    "PARSE_DATETIME": ("it is not a function of MySQL", "write STR_TO_DATE(value, '%Y-%m-%d')"),
    "EPOCH": ("it is not a function of MySQL", "write UNIX_TIMESTAMP(value)"),
    "EPOCH_MS": ("it is not a function of MySQL", "write UNIX_TIMESTAMP(value) * 1000, or FROM_UNIXTIME(value / 1000)"),
    "TO_UNIXTIME": ("it is not a function of MySQL", "write UNIX_TIMESTAMP(value)"),
    "GETDATE": ("it is not a function of MySQL", "write NOW()"),
    "SYSTIMESTAMP": ("it is not a function of MySQL", "write NOW(6)"),
    "AGE": ("it is not a function of MySQL", "write TIMESTAMPDIFF(DAY, earlier, later)"),
    "ISODOW": ("it is not a function of MySQL", "write WEEKDAY(value) + 1"),
    "ADD_MONTHS": ("it is a function of MariaDB", "write DATE_ADD(value, INTERVAL 3 MONTH)"),
    "FROM_TZ": ("kpipe's times have no zone", "write CONVERT_TZ(value, '+02:00', 'UTC')"),
}
