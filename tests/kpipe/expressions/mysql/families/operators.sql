-- arithmetic
n + n
n + 3
n + d
d + d2
f + f2
n + f
t + n
t + t2
b + n
d + f
i + 3
d + 1.25
n + '2'
n + 0.5
dt + 1
at + 1
tm + 1
n + NULL
t + 1.5
b + b
n - n
n - 3
n - d
d - d2
f - f2
n - f
t - n
t - t2
b - n
d - f
i - 3
d - 1.25
n - '2'
n - 0.5
dt - 1
at - 1
tm - 1
n - NULL
t - 1.5
b - b
n * n
n * 3
n * d
d * d2
f * f2
n * f
t * n
t * t2
b * n
d * f
n * 7
d * 1.25
n * '2'
n * 0.5
dt * 1
at * 1
tm * 1
n * NULL
t * 1.5
b * b
n / n
n / 3
n / d
d / d2
f / f2
n / f
t / n
t / t2
b / n
d / f
i / 3
d / 1.25
n / '2'
n / 0.5
dt / 1
at / 1
tm / 1
n / NULL
t / 1.5
b / b
n DIV 3
i DIV 7
i DIV n
d DIV d2
d DIV n
n DIV d
t DIV n
f DIV f2
n DIV 0
d DIV 0.3
b DIV n
-7 DIV n
n DIV NULL
n % 3
i % 7
i % n
d % d2
d % n
n % d
t % n
f % f2
n % 0
d % 0.3
b % n
-7 % n
n % NULL
n MOD 3
i MOD 7
i MOD n
d MOD d2
d MOD n
n MOD d
t MOD n
f MOD f2
n MOD 0
d MOD 0.3
b MOD n
-7 MOD n
n MOD NULL
-n
-d
-f
-t
-b
+t
- -n
1/3
5/2
10/4*4
1.0/3
2/3.00
7 DIV 2
-7 DIV 2
-7 % 3
5.5 % 2
0.1 + 0.2
1e0/3
n*1.5
(n+1)*(n-1)/7
2+3*4-5
'3'+'4'
'abc'+1
'1e2'+0
1+TRUE
n/0
n%0
-- comparisons
n = 1
t = 1
t = '1'
t = t2
n = t
n = d
d = 1.5
f = 0.1
d = f
b = 1
b = TRUE
t = TRUE
t = b
dt = '2024-02-29'
at = dt
dt = at
at = '1970-01-01'
n = NULL
t = ''
t = 0
tm = '12:00:00'
i = 9223372036854775807
d = '1.5'
f = '2.5'
t = 1.5
dt = '20240229'
i = i2
n <> 1
t <> 1
t <> '1'
t <> t2
n <> t
n <> d
d <> 1.5
f <> 0.1
d <> f
b <> 1
b <> TRUE
t <> TRUE
t <> b
dt <> '2024-02-29'
at <> dt
dt <> at
at <> '1970-01-01'
n <> NULL
t <> ''
t <> 0
tm <> '12:00:00'
i <> 9223372036854775807
d <> '1.5'
f <> '2.5'
t <> 1.5
dt <> '20240229'
i <> i2
n < 1
t < 1
t < '1'
t < t2
n < t
n < d
d < 1.5
f < 0.1
d < f
b < 1
b < TRUE
t < TRUE
t < b
dt < '2024-02-29'
at < dt
dt < at
at < '1970-01-01'
n < NULL
t < ''
t < 0
tm < '12:00:00'
i < 9223372036854775807
d < '1.5'
f < '2.5'
t < 1.5
dt < '20240229'
i < i2
n <= 1
t <= 1
t <= '1'
t <= t2
n <= t
n <= d
d <= 1.5
f <= 0.1
d <= f
b <= 1
b <= TRUE
t <= TRUE
t <= b
dt <= '2024-02-29'
at <= dt
dt <= at
at <= '1970-01-01'
n <= NULL
t <= ''
t <= 0
tm <= '12:00:00'
i <= 9223372036854775807
d <= '1.5'
f <= '2.5'
t <= 1.5
dt <= '20240229'
i <= i2
n > 1
t > 1
t > '1'
t > t2
n > t
n > d
d > 1.5
f > 0.1
d > f
b > 1
b > TRUE
t > TRUE
t > b
dt > '2024-02-29'
at > dt
dt > at
at > '1970-01-01'
n > NULL
t > ''
t > 0
tm > '12:00:00'
i > 9223372036854775807
d > '1.5'
f > '2.5'
t > 1.5
dt > '20240229'
i > i2
n >= 1
t >= 1
t >= '1'
t >= t2
n >= t
n >= d
d >= 1.5
f >= 0.1
d >= f
b >= 1
b >= TRUE
t >= TRUE
t >= b
dt >= '2024-02-29'
at >= dt
dt >= at
at >= '1970-01-01'
n >= NULL
t >= ''
t >= 0
tm >= '12:00:00'
i >= 9223372036854775807
d >= '1.5'
f >= '2.5'
t >= 1.5
dt >= '20240229'
i >= i2
n <=> 1
t <=> 1
t <=> '1'
t <=> t2
n <=> t
n <=> d
d <=> 1.5
f <=> 0.1
d <=> f
b <=> 1
b <=> TRUE
t <=> TRUE
t <=> b
dt <=> '2024-02-29'
at <=> dt
dt <=> at
at <=> '1970-01-01'
n <=> NULL
t <=> ''
t <=> 0
tm <=> '12:00:00'
i <=> 9223372036854775807
d <=> '1.5'
f <=> '2.5'
t <=> 1.5
dt <=> '20240229'
i <=> i2
-- in, between, is, logic
n IN (1, 2, 3)
t IN ('abc', '1')
t IN (1, 0)
n IN (1, NULL)
n NOT IN (1, NULL)
n NOT IN (1,2)
t IN ('1', 1)
d IN (1.5, '2.5')
dt IN ('2024-02-29', '1970-01-01')
t IN ('1.4', 1)
n BETWEEN 1 AND 5
t BETWEEN 'a' AND 'z'
d BETWEEN -1 AND 1.5
n NOT BETWEEN 0 AND 2
dt BETWEEN '2000-01-01' AND '2024-12-31'
n BETWEEN NULL AND 5
n BETWEEN '1' AND '5'
t BETWEEN 0 AND 10
at BETWEEN '1990-01-01' AND '2024-01-01 00:00:00'
n IS NULL
n IS NOT NULL
b IS TRUE
b IS NOT TRUE
n IS FALSE
n IS UNKNOWN
t IS TRUE
d IS NOT FALSE
f IS TRUE
n AND b
n OR b
n XOR b
NOT n
!n
NOT b
NOT t
t AND 1
t OR 0
NULL AND n
NULL OR n
NULL XOR n
n > 1 AND t <> 'z'
d AND f
n && 1
NOT n = 1
!n = 1
NOT t LIKE 'a%'
n = 1 = 1
1 < n < 3
n IS NULL = 0
-- patterns
t LIKE 'a%'
t LIKE '%b%'
t LIKE 'a_c'
t LIKE 'a\%b\_c'
t LIKE 'a|%b|_c' ESCAPE '|'
t LIKE ''
t NOT LIKE '%a%'
n LIKE '1%'
d LIKE '%.5%'
t LIKE t
t LIKE '日%'
t LIKE 'A%'
t LIKE NULL
t LIKE '%\\%'
t LIKE 'x\\y'
dt LIKE '2024%'
b LIKE '1'
t LIKE '_____'
t LIKE '%''s'
t REGEXP '^a'
t REGEXP 'c$'
t NOT REGEXP '[0-9]'
t RLIKE 'b|z'
t REGEXP '^[A-Z]+$'
t REGEXP '\\.'
t REGEXP '^\\d+$'
n REGEXP '^1'
t REGEXP 'ü'
t REGEXP '.'
t REGEXP NULL
d REGEXP '5'
t REGEXP '\\s'
t REGEXP '[[:alpha:]]'
t REGEXP '^.{3}$'
t REGEXP 'A'
-- bits
n & 5
i & 255
i & i2
n & -1
t & 3
d & 7
f & 3
b & 1
n & NULL
n | 5
i | 255
i | i2
n | -1
t | 3
d | 7
f | 3
b | 1
n | NULL
n ^ 5
i ^ 255
i ^ i2
n ^ -1
t ^ 3
d ^ 7
f ^ 3
b ^ 1
n ^ NULL
n << 2
n << 63
n << 64
i << 1
n >> 1
i >> 3
n >> 64
~n
~i
~0
1 << 10
n & 3 | 4 ^ 1
5 | 2 << 1
-- case
CASE n WHEN 1 THEN 'one' WHEN 2 THEN 'two' ELSE 'many' END
CASE WHEN n > 1 THEN n ELSE t END
CASE WHEN b THEN 1 WHEN NOT b THEN 0 END
CASE t WHEN 'abc' THEN 1 WHEN '1' THEN 2.5 END
CASE WHEN n = 1 THEN dt ELSE at END
CASE n WHEN NULL THEN 1 ELSE 2 END
CASE WHEN n THEN 1 ELSE '1' END
CASE n WHEN '1' THEN d ELSE f END
IF(n, 'yes', 'no')
IF(t, 1, 0)
IF(n > 1, n, d)
IF(b, dt, NULL)
IF(NULL, 1, 2)
IFNULL(n, 'none')
IFNULL(n, 7)
IFNULL(d, 1)
IFNULL(t, n)
IFNULL(dt, at)
NVL(n, 1)
COALESCE(n, i, 5)
COALESCE(t, 'x')
COALESCE(NULL, n)
COALESCE(d, n, f)
COALESCE(NULL, NULL)
COALESCE(dt, '2000-01-01')
NULLIF(n, 1)
NULLIF(t, 'abc')
NULLIF(t, 1)
NULLIF(d, 1.5)
NULLIF(n, NULL)
ISNULL(n)
ISNULL(n + 1)
GREATEST(n, 3)
GREATEST(n, d)
GREATEST(t, t2)
GREATEST(n, NULL)
LEAST(n, 3)
LEAST(n, d, f)
LEAST(t, 'b')
LEAST(1, NULL)
GREATEST(dt, '2020-01-01')
LEAST(dt, dt2)
GREATEST(f, 1)
GREATEST(b, 0)
LEAST('10', '9')
INTERVAL(n, 0, 2, 5)
INTERVAL(23, 1, 15, 17, 30, 44, 200)
-- literals
0x4D
x'4D7953514C'
0x41 = 'A'
b'01000001'
0b1 + 1
0x10 + 0
'a' 'b'
"double"
'it''s'
'tab\t'
'new\nline'
'\%'
'back\\slash'
1.50
1e3
1.5e-3
-0.0
.5
007
NULL
TRUE
FALSE
DATE '2024-02-29'
TIMESTAMP '2024-02-29 01:02:03'
TIME '01:02:03'
1000000000000000000000
123456789.123456789
-- dates and intervals
dt - INTERVAL 3 MICROSECOND
'2024-01-31 10:00:00' + INTERVAL n MICROSECOND
'2024-01-31' + INTERVAL n MICROSECOND
dt - INTERVAL 3 SECOND
'2024-01-31 10:00:00' + INTERVAL n SECOND
'2024-01-31' + INTERVAL n SECOND
dt - INTERVAL 3 MINUTE
'2024-01-31 10:00:00' + INTERVAL n MINUTE
'2024-01-31' + INTERVAL n MINUTE
dt - INTERVAL 3 HOUR
'2024-01-31 10:00:00' + INTERVAL n HOUR
'2024-01-31' + INTERVAL n HOUR
dt - INTERVAL 3 DAY
'2024-01-31 10:00:00' + INTERVAL n DAY
'2024-01-31' + INTERVAL n DAY
dt - INTERVAL 3 WEEK
'2024-01-31 10:00:00' + INTERVAL n WEEK
'2024-01-31' + INTERVAL n WEEK
dt - INTERVAL 3 MONTH
'2024-01-31 10:00:00' + INTERVAL n MONTH
'2024-01-31' + INTERVAL n MONTH
dt - INTERVAL 3 QUARTER
'2024-01-31 10:00:00' + INTERVAL n QUARTER
'2024-01-31' + INTERVAL n QUARTER
dt - INTERVAL 3 YEAR
'2024-01-31 10:00:00' + INTERVAL n YEAR
'2024-01-31' + INTERVAL n YEAR
'2024-01-31' + INTERVAL '1:30' MINUTE_SECOND
'2024-01-31 00:00:00' + INTERVAL '1 2:3:4' DAY_SECOND
'2024-01-31' + INTERVAL '1-2' YEAR_MONTH
'2024-01-31' - INTERVAL '1.5' SECOND
'2024-01-31' + INTERVAL 1.5 DAY
'2024-01-31' + INTERVAL '2' DAY
INTERVAL 1 MONTH + '2024-01-31'
'2024-01-31' + INTERVAL '-1:30' HOUR_MINUTE
'2024-01-31' + INTERVAL '1:2:3.5' HOUR_MICROSECOND
t + INTERVAL 1 DAY
'2024-02-29' + INTERVAL 1 YEAR
'2024-01-31' + INTERVAL NULL DAY
'2024-01-31' + INTERVAL '10' DAY_HOUR
