-- A text that is no date, or no time, beside one; a date whose day or month does not exist stands between its neighbours
dt = t
dt <> t
dt < t
dt > t
dt <= t
dt >= t2
t < dt
dt <=> t
at = t
at >= t
at < t2
at <=> t2
dt IN (t, t2)
at IN (t, dt)
dt BETWEEN t AND t2
t BETWEEN dt AND dt2
NOT at BETWEEN t AND t2
CASE dt WHEN t THEN 1 WHEN t2 THEN 2 ELSE 3 END
NULLIF(dt, t)
NULLIF(at, t2)
dt > CONCAT('2023-02-3', n)
dt = CONCAT('2024-02-3', n)
at < CONCAT('2023-', n, '-15')
at < CONCAT('2024-02-', n, ' 10:11:12')
dt < CONCAT('2024-13-', n)
dt >= CONCAT('2023-06-31 25:00:0', n)
dt > IF(n > 1, 'abc', '')
tm = t
tm < t
tm >= t2
tm <=> t
tm IN (t, '13:14:15')
tm BETWEEN t AND t2
-- Shifts take the lower 32 bits of their count
1 << 4294967296
1 << 4294967297
8 >> 4294967298
i << i
i >> i
i << i2
i2 >> i
i << -n
1 << 18446744073709551615
i << 4294967300.4
i >> '4294967298'
-- GREATEST and LEAST of texts and numbers
-- Quotients that are multiplied again
n/3*d
i/7*d2
n/7*d*d2
d/3*d2
d/7*d2/3
n/3*1.5
n/3/7*d
-- A fraction that reaches the year 10000
CAST('9999-12-31 23:59:59.9' AS DATETIME)
CAST('9999-12-31 23:59:59.9999999' AS DATETIME(6))
DATE('9999-12-31 23:59:59.9999999')
STR_TO_DATE('9999 366', '%Y %j')
STR_TO_DATE('9999 53 Sunday', '%x %v %W')
YEAR(CAST('9999-12-31 23:59:59.99' AS DATETIME))
-- NUL in texts
LENGTH('a\0b')
HEX(CONCAT('a\0', t))
t < 'a\0b'
REPLACE(CONCAT(t, '\0', t2), '\0', '-')
LOCATE('\0', 'ab\0c')
