"""Functions of dates and times that are refused by name, each with the reason and what to write instead."""

from __future__ import annotations

__all__ = ["TIMES"]

# Names of other databases, and of MySQL's for which there is no meaning here.
TIMES: dict[str, tuple[str, str]] = {
    "DATE_DIFF": ("it is no function of MySQL's", "write DATEDIFF(later, earlier), or TIMESTAMPDIFF(SECOND, earlier, later)"),
    "DATE_PART": ("it is no function of MySQL's", "write EXTRACT(YEAR FROM value)"),
    "DATEPART": ("it is no function of MySQL's", "write EXTRACT(YEAR FROM value)"),
    "DATEADD": ("it is no function of MySQL's", "write DATE_ADD(value, INTERVAL 3 DAY)"),
    "DATE_FROM_PARTS": ("it is no function of MySQL's", "write MAKEDATE(year, 1) + INTERVAL month - 1 MONTH"),
    "MAKE_DATE": ("it is no function of MySQL's", "write MAKEDATE(year, day)"),
    "MAKE_TIMESTAMP": ("it is no function of MySQL's", "write TIMESTAMP(date, time)"),
    "STRFTIME": ("it is no function of MySQL's", "write DATE_FORMAT(value, '%Y-%m-%d')"),
    "STRPTIME": ("it is no function of MySQL's", "write STR_TO_DATE(value, '%Y-%m-%d')"),
    "PARSE_DATETIME": ("it is no function of MySQL's", "write STR_TO_DATE(value, '%Y-%m-%d')"),
    "EPOCH": ("it is no function of MySQL's", "write UNIX_TIMESTAMP(value)"),
    "EPOCH_MS": ("it is no function of MySQL's", "write UNIX_TIMESTAMP(value) * 1000, or FROM_UNIXTIME(value / 1000)"),
    "TO_UNIXTIME": ("it is no function of MySQL's", "write UNIX_TIMESTAMP(value)"),
    "GETDATE": ("it is no function of MySQL's", "write NOW()"),
    "SYSTIMESTAMP": ("it is no function of MySQL's", "write NOW(6)"),
    "AGE": ("it is no function of MySQL's", "write TIMESTAMPDIFF(DAY, earlier, later)"),
    "ISODOW": ("it is no function of MySQL's", "write WEEKDAY(value) + 1"),
    "ADD_MONTHS": ("it is MariaDB's", "write DATE_ADD(value, INTERVAL 3 MONTH)"),
    "FROM_TZ": ("times have no zone here", "write CONVERT_TZ(value, '+02:00', 'UTC')"),
}
