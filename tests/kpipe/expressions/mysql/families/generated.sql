-- a part of what generated.py made with the seeds 1 and 7, and of functions with arguments of every type
IF(0x1F, at, i) * TRUE - 0.1e0
IFNULL(d, t2) <=> CASE 2.50 WHEN b THEN '' END >> '2.5' <=> 0.1e0 ^ FALSE = '2.5'
(NOT 7 <= 1.5)
CASE 0x1F WHEN at THEN at END
f ^ 2e0 % CASE WHEN 2 THEN 0.25 ELSE '2024-02-29' END
3 < FALSE % IF(1, '', 255) * (NULL) NOT BETWEEN IF(0.1e0, 1.5, 0.25) AND t2 MOD 2
+2e0 <= 0 >> t2 - 10
NOT 2 >= t ^ CASE WHEN f THEN 1.5 ELSE 0x1F END & 0x1F IS UNKNOWN
d XOR 1 / FALSE AND 0.25
2.50 >= ''
t2 > 1
0 OR 0.1e0
(f && i && (1.0))
i MOD -1 | 2.50 ^ t
((d))
d2 >= 0.1e0 DIV ABS(10)
1.0 AND d
CASE WHEN -1 THEN dt ELSE NULL END MOD 7 - 1.5
NULL + 0x1F >= d2 ^ 1.5
0.1e0 && 7 AND IF(0, 1, d)
(2e0) >= NULL IN (0.25, dt)
2e0 XOR 1000000 | FALSE / 1
3 > TRUE
~at & '2024-02-29'
0x1F XOR 1.0
IF(0x1F, FALSE, 1) - !0.1e0
1.0 XOR at > (0.1e0)
+2e0 <= 1.5 <=> 0.1e0
'abc' IS TRUE && CASE dt WHEN 3 THEN t END
-d2
0.1e0 <= TRUE
2 NOT IN (0.25, NULL)
IFNULL(FALSE >= 10, -1.5)
255 BETWEEN 7 AND 0.25
7 < 1.0 IS UNKNOWN
('2024-02-29') % CASE '' WHEN i THEN f END
CASE WHEN 1.5 THEN 0x1F ELSE n END < n MOD d2
d >> ''
CASE WHEN +1000000 THEN 1000000 <= NULL ELSE 1 & t2 END
10 AND TRUE << '2.5' IS NULL
'' XOR 3 / ~'1'
~10 / n
IFNULL(~1.5, NULL - 1.0)
'' - -1 DIV b + FALSE = (d = 2)
'abc' MOD NULL AND 7 >= 10
t XOR dt
d2 ^ 10
b OR 1
CASE WHEN 0.1e0 THEN '1' ELSE '2.5' END >> d < 0.1e0
CASE WHEN (dt) THEN (3) ELSE (t) END
(!3)
d2 / 0 / 7 - NULL
at AND d2
3 && -1 + f * 1
t2 MOD '1' IS UNKNOWN
(2e0) + -t2
1.0 BETWEEN t2 AND t2
IF(1.0 >= 1.0, (n), n < 2.50) & ~1.0 BETWEEN 0 AND -1
d2 - 3 = '1' NOT IN (7, '1')
'1' % '2024-02-29' MOD '2024-02-29' > NULL
(NOT dt)
(i <= b)
((0.1e0))
IF(dt, '2024-02-29', 3) OR NOT '1' << CASE WHEN -1 >= 1.0 THEN n = '1' ELSE '1' OR i END
0.1e0 OR 3
CASE 2e0 NOT BETWEEN 2 AND b WHEN (2.50) THEN d2 = '2.5' END >= ((0.25))
'2.5' ^ d2
(255 & '2024-02-29')
(255 <= d2)
at NOT IN (d, 2.50) >= IF(FALSE, 255, at)
(1 OR n)
d AND '2024-02-29' ^ TRUE * n
CASE 3 BETWEEN 10 AND 1000000 WHEN 1.5 << at THEN 1.0 IN (NULL, 1) END
(2e0 MOD d2 IN (n MOD d2, f))
0 <=> 0.25 IS NOT TRUE
n XOR at
n << 2.50 XOR 7 >= 0x1F
(CASE WHEN 3 THEN 1 ELSE FALSE END)
1.0 MOD i >= TRUE - '2.5'
f XOR '' - ~dt
i XOR '' | (t)
FALSE BETWEEN TRUE AND t2
IF(NOT 1.0 IN (t2 && FALSE, 'abc'), t && 2 && (d2), '2024-02-29' / NULL - n = i)
i IN ('2024-02-29', 1.0)
ABS((3))
b <=> i | IF(10, '1', 7) ^ (7 >> 2e0)
'2.5' && 1.0 NOT IN (NOT -1, '2.5')
IF(dt, 0.25, n) >= (at)
CASE WHEN n THEN 0.25 ELSE '2.5' END * t2 % '1'
(255) NOT IN (0 NOT BETWEEN '' AND 3, TRUE)
dt OR d MOD at AND 1.0 XOR 2 XOR TRUE & 2.50 BETWEEN 0.25 AND b
n && 0x1F OR 7 >> 1000000
ABS(CASE 2.50 <> dt WHEN -1 AND n THEN (2e0) END)
IF(d, n, '') <> CASE 2.50 WHEN 2e0 THEN i END
IF(-'2.5' = IF(0.25, d, NULL), -1 > 'abc' % 0.25 * 1.0, ~2e0 OR i & b)
2.50 DIV n & '2024-02-29' IS UNKNOWN
ABS(IF(2, 'abc', '1'))
2 BETWEEN 1.5 AND '2.5' & 1 IN (at, n)
n <> 7
'2.5' < t >> n / ''
CASE 0.1e0 AND -1 WHEN 0.1e0 DIV FALSE THEN 1000000 <> 2.50 END XOR i MOD 0.25 % at < 10
+f >> i
CASE WHEN d THEN 'abc' ELSE '1' END <= i > FALSE
('2.5' && TRUE)
CASE WHEN (0.25) THEN ~'2.5' ELSE d >= 7 END
CASE WHEN ~'1' THEN (0.1e0) ELSE 1.0 IS NULL END
1000000 AND dt
0.1e0 >= 2 <= CASE at WHEN n THEN d2 END DIV 2e0 <= d2 >> n <= i
~2.50 >= d2
(d XOR 0.25)
ABS(n && '2.5')
ABS(b % 1.5)
(1.0)
NULL + f
CASE 1 WHEN f THEN 2e0 END < ~1
IF('1', d2, n) XOR 0x1F > d2
d2 < '2.5' + 0x1F BETWEEN 0 AND d
7 >> '' MOD 0x1F & 1.5
NULL <=> ''
255 >> '2024-02-29' - 1.5 % 10
(IF(0, '2024-02-29', NULL))
'abc' IS NULL >= !dt
i <> n DIV CASE WHEN 1.5 THEN 1.0 ELSE 2.50 END
-CASE 1 < i WHEN 10 NOT BETWEEN n AND d2 THEN 10 << 10 END
1.0 BETWEEN '1' AND 1000000 & -0
(('1'))
IF('2.5' DIV f, i MOD 7, IF(2.50, NULL, 0.25))
b >> '1'
NOT f | 1.5
n + f NOT IN (2 BETWEEN 2.50 AND '1', 1.0)
IF(1000000 | 2, ~7, '' | b)
CASE WHEN '1' <> n THEN 1 << 0.1e0 ELSE 0x1F BETWEEN t AND b END
(ABS(2))
(d) > d2 AND 2.50
CASE IF(0, 2, n) WHEN (NULL) THEN !'abc' END | 1 <=> 1.5 <> IF(1, FALSE, d)
CASE WHEN 0x1F - t THEN 'abc' OR '2024-02-29' ELSE 3 IS TRUE END
0.25 & NULL / (1.5)
!dt > ABS(10)
NOT CASE WHEN TRUE THEN TRUE ELSE d2 END
n & 1.5 / '' + 0
(i) BETWEEN 0 ^ TRUE AND (n) - ABS(t / '2024-02-29')
~FALSE BETWEEN i AND f
2e0 > d2 XOR 1.0 >= '2024-02-29'
n ^ 1 < d2 / 0x1F
CASE 7 WHEN 'abc' THEN TRUE END
2e0 && b && IFNULL(d, i)
0 & t AND '1' <=> 2e0
(0.1e0 IS NULL)
f XOR t2 % +1000000
'2.5' < t2 & IF(2.50, d2, 0x1F) XOR 2 >= 0 << '1' IS NULL
3 + f IN ((dt), d2)
t2 XOR 1.5 > NULL > n
7 AND 0.25 + d2 NOT IN (NULL, b)
ABS(dt >= 10)
2 DIV b
1.5 NOT IN (1, 0x1F)
ABS(7) <= 0x1F MOD 1.0
IFNULL(1.0, t2)
NULL XOR b
NOT 0x1F
NULL | dt | d + 1.5
NOT b DIV '2024-02-29'
CASE WHEN '' THEN 0 ELSE at END
'2024-02-29' XOR 10 >= FALSE = i
0 + i
IFNULL(('2024-02-29'), 0.25 - 1.0) MOD !10 <= 1000000
++d2
n + b & t2 NOT IN (1, 2)
1 | 0 MOD 2.50 ^ t2
~FALSE / n IS NULL
CASE 1.0 WHEN 7 THEN '2.5' END <=> f && '1' << 1.5 ^ 2.50 - IF('abc', 10, b)
1000000 >= t2 > at OR ''
(2e0 ^ t << (1000000))
FALSE IN (t, 3) AND t2 XOR '2024-02-29'
!'2.5' XOR 2e0
NOT 2.50 NOT BETWEEN 1000000 % 2.50 AND ~'2024-02-29'
n IS NOT TRUE OR 2.50 NOT BETWEEN FALSE AND 0.1e0
b - TRUE XOR ('abc')
(2e0) - '' << 7
IF(2 && 0, t >> f, b >> 2.50) >= IF(f, TRUE, n) >= 3 AND 1000000
d2 > n MOD CASE WHEN 0.25 THEN NULL ELSE '2024-02-29' END
b AND t2 | CASE WHEN 3 THEN 0.1e0 ELSE n END
(0.25) XOR '1' & 2.50
IFNULL(1 / 'abc', 0x1F <=> n)
IF(dt, 0x1F, 1.0) * (n)
'abc' * 1
-n IN (1.5, '2.5')
ABS(-1000000 > dt IS FALSE)
(2e0 > 255)
+dt
ABS(0.25) - (n)
(i) | 'abc' <> dt
CASE WHEN 0.25 - '2024-02-29' THEN NOT at ELSE 1 & 0 END
t DIV dt ^ 2e0 | 1.5
0 ^ 0.25
NULL XOR 10 = 1 BETWEEN '2.5' AND b
n AND n >= (0.1e0)
'2024-02-29' && 7 / 1.5 + 1.5
-0x1F % ''
10 <= d
IF(1000000 / 0.25, 2 OR 2e0, (b))
7 / 0 BETWEEN dt / FALSE AND 2 IS NOT NULL
'1' < d2
0.25 << NULL MOD d OR b
1.5 < f
('abc')
~i OR 1000000 IS UNKNOWN
ABS(d2) & 255 XOR 0x1F OR b > d2 & IFNULL(f, 1.0)
2 << 10 << (t2)
NOT 1000000 + i IS NOT NULL
FALSE <=> n
!1000000 <= 1000000
(at) & 2 BETWEEN 1.5 AND 1000000 = CASE n WHEN 'abc' THEN 0.1e0 END + '' NOT IN (-1, 1.0)
255 & n >= at <= t2
CASE dt <= '2024-02-29' WHEN 0 >= 3 THEN TRUE IN ('abc', 1) END
'2.5' ^ 1000000 * 2.50 <> FALSE
!255
CASE WHEN 0.25 THEN 3 ELSE t2 END
CASE WHEN TRUE THEN t ELSE 0 END / (t2)
3 MOD 0.25 NOT IN (TRUE MOD i, 2) <> (t2) % IF(f, n, dt)
IFNULL(IF(1.5 / d2, 0x1F & b, i <=> '2.5'), NULL >= d2 * ABS(7))
IF(FALSE, 7, 7) % f << d2
CASE WHEN 0.1e0 < 7 THEN t OR 'abc' ELSE +1000000 END & t2 + f > 0 / d
b > 0 + 3 % -1
!(1.5)
CASE CASE f WHEN b THEN 2.50 END WHEN '' <=> NULL THEN 3 <=> 'abc' END
1.0 % TRUE && -1 + 1.5
IF(-1, t2, 'abc')
(0.1e0) > CASE WHEN 0.25 THEN 1.0 ELSE t END MOD IF(2e0, t2, '') IS TRUE
f > 2 * b AND NULL
-dt < (-1)
(b) <> '2024-02-29' OR ''
2e0 % 'abc'
CASE ~FALSE IN (1.5, 255) WHEN ~at <=> (dt) THEN (2.50) / (1) END
ABS(TRUE) | -2e0
IF(-1, n, -1) IS FALSE
d2 NOT IN ('2.5', at)
(IF('abc', 1, t) NOT BETWEEN (-1) AND b MOD n)
CASE WHEN 0 THEN 1.5 ELSE at END NOT BETWEEN ABS(0) AND FALSE <> 1.0
7 = 10 AND IFNULL('', 'abc')
IF(f, '2.5', '2.5') <> 1000000 << at
+1.0 OR 10
'1' | d * 255 = ''
10 = TRUE + 2e0 DIV i
CASE WHEN 7 THEN -1 ELSE 'abc' END IS FALSE
ABS(CASE !1 WHEN IF(7, 10, 7) THEN IFNULL(10, FALSE) END)
ABS(n / '')
i IN (d, FALSE)
CASE '1' WHEN i THEN at END
NULL <> t
-'' NOT BETWEEN b AND 1000000
+2e0 && d
2 && dt MOD -1 / 0.25
IFNULL(1.0, 0)
(1000000 % NULL)
0.25 <=> t2 NOT BETWEEN IF(1000000, t2, 'abc') AND 0.25 < dt IS UNKNOWN
2e0 OR i <= 7 % FALSE
IF(t, n, 3) DIV -1 && d2
b - 2 << NULL NOT BETWEEN '1' AND f
n <=> 'abc' >= dt > 2.50
NULL * 2
!'abc' >= FALSE > at
IF(0x1F, '2.5', '2024-02-29') = NULL XOR FALSE
(-1) > -TRUE
IFNULL(2, -1) % d2 XOR '2.5'
f < 1
(CASE WHEN 1.0 THEN '1' ELSE 255 END OR 2 NOT BETWEEN 'abc' AND -1)
0.25 OR '2.5' OR 10 <> '2.5'
ABS(!2)
1 NOT BETWEEN 2.50 AND 2.50 > f & -1
CASE b WHEN i THEN 1.5 END + -f AND CASE i WHEN 1 THEN -1 END ^ t OR at
2.50 >= 1000000
0.1e0 OR FALSE
d OR 10
2.50 <= i <= i IS TRUE
IF((0x1F), '2024-02-29' - 1, 0.1e0 = '1')
CASE WHEN 7 THEN d ELSE d2 END MOD '' MOD 0.25
'2024-02-29' / t2 - '1' * 7
f - TRUE DIV IF('2.5', 1, f) OR NOT b = ~at
(!2e0) + IF(1000000, n, at) << IF('1', n, dt)
(CASE WHEN 0.1e0 THEN 0.25 ELSE 10 END) < 7 <= 2 AND ~-1
n >> n | f <= TRUE
ABS('abc')
(NOT 0.1e0 * ('2.5'))
(('1')) = CASE WHEN 1.0 THEN d ELSE at END <> f & 2e0
!'2024-02-29'
NOT '' IS TRUE
1000000 - 0.25
(1.5 <= d)
(1.5) <=> 1.0 <= at
-b >> 1000000 << n
IF(at - 1.5, IF(i, dt, 10), CASE 1 WHEN 2 THEN at END)
i - d && 'abc' = d2 > (IF(d, 2.50, at))
0.1e0 OR 1.0 < dt <=> FALSE
dt >= 2e0 & 2e0 % ''
CASE '' WHEN 2e0 THEN '1' END MOD d2 ^ 2e0
~2e0 NOT BETWEEN 0 AND 10
ABS((7))
1 <> 0 IN (~0.25, '2.5')
~-1
1.0 NOT IN (1, 255)
CASE WHEN 1.5 THEN d ELSE 255 END | ('') >> 0x1F >= i < 1000000 OR 1
('1' NOT BETWEEN d2 AND 2.50)
'2.5' XOR ''
'' <= t2 >> ('') << CASE (10) WHEN 2 <> 0.25 THEN f >= n END
-'1' IN (n && 'abc', '2.5')
b && 10 IS NOT TRUE
d2 && 0.25
1.0 && 255 NOT BETWEEN IFNULL('abc', 3) AND '' <=> ''
1.5 >= 3
2.50 && n OR 0x1F NOT BETWEEN 1 AND n
TRUE > 7 MOD CASE 1 WHEN at THEN 0.1e0 END
TRUE % FALSE
ABS(3 = 0.25)
CASE WHEN -1 NOT BETWEEN 0.25 AND 0.25 THEN CASE 3 WHEN 10 THEN 3 END ELSE FALSE & 7 END
(2 IS NOT NULL)
+~(at)
1 + 0
NOT -1 >> t
CASE t2 WHEN 0.1e0 THEN '' END & (1)
ABS(1 XOR dt)
1 <> 1.0 <> 1.5 / '2024-02-29'
('2.5' <= '2.5')
IF(0.25, 3, 7) NOT IN (IFNULL(0x1F, 0), '1')
n ^ 10 <= '' > b
0 IS NULL
TRUE << 1.0
IF(IF('1', FALSE, 2.50) + (i), (d <=> b), (10) BETWEEN ('2.5') AND b DIV 0.25)
ABS(n)
ABS(0 > i)
COALESCE(2e0, 3)
INET_ATON(DATE '2024-02-29')
LOG(n & 7, b)
TRUNCATE(d, 2e0)
ATAN2(t, '1.5')
NVL2(n > 1, i, n)
NVL2(n > 1, -2, n)
NULLIF(b, dt)
MOD(i, '1.5')
LOG10(n & 3)
ABS(dt)
ACOS(i)
ROUND(n & 7, -2)
COALESCE(2e0, n & 7)
MOD(t, d)
TRUNCATE(NULL, f)
LOG(CONCAT(n))
NVL2(n > 1, f, d)
NULLIF(3, t)
IFNULL(NULL, '1.5')
DEGREES(n)
LOG('1e400')
LOG(dt, NULL)
IFNULL(2e0, f)
IF(n > 1, 2e0, b)
ROUND(NULL, NULL)
TRUNCATE(n, 3)
POW(-2, NULL)
LOG(2e0, n & 7)
LN(CONCAT(n))
ABS(n)
LOG2(tm)
TRUNCATE(f, n & 7)
SQRT(n)
LOG10('-7')
IFNULL(b, n & 7)
NULLIF('1.5', 0.5)
LEAST(n, i)
BIT_COUNT(1e-5)
NVL2(n > 1, NULL, t)
TRUNCATE(n & 7, f)
ATAN(f)
LOG(3, n & 7)
IFNULL(f, 2e0)
SIGN(NULL)
POW(-2, '1.5')
LOG10(DATE '2024-02-29')
NULLIF(NULL, i)
ATAN2(i, -2)
COS(1e-5)
GREATEST(NULL, '1.5')
IFNULL(i, b)
NULLIF(n & 7, '1.5')
NVL2(n > 1, b, dt)
NVL2(n > 1, -2, -2)
NVL2(n > 1, -2, d)
ASIN(n)
MOD(i, f)
COALESCE(i, d / 7)
CEIL(t)
MOD(dt, f)
NVL2(n > 1, i, d)
LEAST(i, d)
GREATEST(2e0, NULL)
ASIN('1.5')
COALESCE(d, f)
POW(f, d / 7)
DEGREES('1e400')
ROUND(3, dt)
MOD(f, '1.5')
MOD('1.5', i)
ROUND(3, '1.5')
COALESCE(d, n & 7)
LOG(2e0, 3)
MOD(d / 7, 3)
IF(n > 1, dt, 0.5)
POW(n, 0.5)
MOD(dt, 2e0)
IFNULL('1.5', 0.5)
ATAN2(i, t)
NVL2(n > 1, t, t)
GREATEST(b, d)
COALESCE(d, 0.5)
TRUNCATE(NULL, 0.5)
ACOS(-2.5)
INET_NTOA(CONCAT(n))
LOG('1.5', -2)
COALESCE(b, t)
COALESCE(3, -2)
SIN(NULL)
LEAST(n & 7, 3)
ROUND(0.5, NULL)
POW(2e0, dt)
LEAST(d, d / 7)
NVL2(n > 1, dt, i)
SIGN('1.5')
COALESCE(NULL, d / 7)
IF(n > 1, 2e0, dt)
ROUND(n, n)
ROUND(3, 0.5)
SQRT(-d)
TRUNCATE(b, d)
COALESCE(-2, 0.5)
IF(n > 1, 3, -2)
TRUNCATE(n & 7, t)
COALESCE(b, 2e0)
IF(n > 1, n, -2)
ATAN(tm)
NULLIF(dt, t)
ATAN(t2)
GREATEST(i, i)
ISNULL(d)
POW(-2, n & 7)
ACOS(1e-5)
POW(d / 7, -2)
ATAN2(f, dt)
LOG(t, f)
MOD(n & 7, d)
LEAST(f, n & 7)
IF(n > 1, t, d)
MOD(b, n)
ATAN2(0.5, -2)
TRUNCATE(-2, t)
IF(n > 1, NULL, -2)
POW(-2, n)
NVL2(n > 1, 0.5, d / 7)
CEIL('1e400')
IF(n > 1, -2, t)
NVL2(n > 1, d / 7, n & 7)
BIT_COUNT(CONCAT(n))
ATAN2(t, b)
LOG2('1.5')
IF(n > 1, f, t)
GREATEST(0.5, 3)
IFNULL(-2, n)
COT(CONCAT(n))
LEAST(n & 7, n)
NVL2(n > 1, dt, NULL)
LEAST(n & 7, b)
NVL2(n > 1, 0.5, f)
ACOS('1.5')
TRUNCATE(3, b)
LOG(t, d)
POW(t, 2e0)
NVL2(n > 1, NULL, f)
IFNULL(f, 3)
LEAST(b, 3)
ROUND(2e0, n & 7)
NVL2(n > 1, 3, d / 7)
GREATEST(2e0, f)
NVL2(n > 1, dt, 2e0)
LOG10(tm)
EXP(CONCAT(n))
ROUND(dt)
ISNULL(CONCAT(n))
SIGN(tm)
NULLIF(0.5, n)
LEAST(3, 2e0)
NVL2(n > 1, d / 7, '1.5')
MOD(b, d / 7)
NVL2(n > 1, 2e0, f)
INET_NTOA(n / 3)
SIN('')
LOG(dt, t)
NULLIF(i, 2e0)
LOG2(d * d2)
NVL2(n > 1, '1.5', n)
MOD(-2, n & 7)
IFNULL(-2, '1.5')
COALESCE('1.5', d)
LOG(-2, -2)
NULLIF(3, i)
ATAN2(d, b)
IFNULL(b, 2e0)
NULLIF(n, 3)
MOD(2e0, dt)
NULLIF(d, 3)
SQRT(1e-5)
IF(n > 1, dt, n)
ATAN2(b, b)
NULLIF(n & 7, d / 7)
MOD(-2, n)
IS_IPV4('-7')
ROUND('')
IFNULL(n & 7, i)
SQRT(dt)
TAN(b)
MOD(n, n & 7)
LOG(0.5, dt)
ISNULL(0)
ROUND(t, b)
POW(0.5, NULL)
NULLIF(d / 7, dt)
IF(n > 1, 3, t)
POW(f, f)
MOD(b, 0.5)
IF(n > 1, b, -2)
NVL2(n > 1, t, 2e0)
INET_NTOA(1e-5)
NULLIF(f, t)
LOG(n & 7, n)
POW('1.5', -2)
IF(n > 1, t, 3)
ATAN(i)
IFNULL(-2, d / 7)
IFNULL(n, i)
GREATEST(d / 7, 3)
RADIANS(CONCAT(n))
POW(n, i)
LEAST(3, n & 7)
NULLIF(0.5, t)
ABS(d * d2)
POW(NULL, dt)
IFNULL(n, '1.5')
NVL2(n > 1, d, dt)
ROUND(0.5, n & 7)
LEAST(n & 7, 2e0)
MOD(f, 2e0)
TRUNCATE(n, d)
ATAN2(NULL, dt)
IS_IPV4(1e300)
TAN(NULL)
MOD(d, d / 7)
IFNULL(NULL, 0.5)
ATAN2(2e0, f)
ATAN(-2.5)
COALESCE(-2, dt)
COALESCE(2e0, '1.5')
LEAST(-2, NULL)
ACOS(t2)
NVL2(n > 1, d, f)
LOG(d, t)
COALESCE(2e0, -2)
EXP(0)
BIT_COUNT(t)
LOG('1.5', 3)
ATAN(t)
ATAN2(-2, n & 7)
NVL2(n > 1, 0.5, b)
LOG2(t2)
ABS(i)
SIN(n)
MOD(d / 7, n)
ROUND(d, -2)
LN(1e-5)
NVL2(n > 1, dt, '1.5')
MOD(NULL, 0.5)
POW(NULL, t)
POW(dt, 0.5)
LOG(n & 7, d)
LOG(2e0, 0.5)
NULLIF(n, b)
TAN(0)
ASIN('1e400')
SQRT(99999999999999999999)
ROUND(b, b)
LOG(NULL, b)
COALESCE(2e0, dt)
LEAST(n, -2)
MOD(d, NULL)
DEGREES(0)
LEAST(2e0, 0.5)
ATAN2(t, 3)
MOD(b, NULL)
NULLIF(3, n & 7)
LOG2(i)
TRUNCATE(NULL, d)
POW(t, '1.5')
ISNULL(n / 3)
LOG('')
ROUND(TRUE)
ROUND(f, b)
CEIL(0)
INET_ATON('abc')
TRUNCATE(3, '1.5')
LOG(f, n)
TRUNCATE(t, 3)
MOD(n & 7, NULL)
NULLIF(2e0, -2)
NVL2(n > 1, '1.5', '1.5')
POW(f, t)
NVL2(n > 1, i, d / 7)
NULLIF(3, dt)
POW('1.5', b)
MOD(t, f)
SIGN(dt)
ATAN2(n & 7, dt)
LOG(b, NULL)
IF(n > 1, 2e0, f)
COALESCE(0.5, NULL)
POW(n & 7, n)
COALESCE('1.5', -2)
IFNULL(f, f)
IFNULL(0.5, '1.5')
LOG(d * d2)
MOD(0.5, b)
LOG(b, 2e0)
MOD(dt, 0.5)
NULLIF(d, d / 7)
LOG10(-d)
IF(n > 1, d / 7, d / 7)
DEGREES(f)
ATAN2(i, i)
NVL2(n > 1, n, '1.5')
LEAST(d / 7, b)
IF(n > 1, 0.5, 0.5)
LN(~0)
ROUND(b)
LOG(b, i)
IF(n > 1, NULL, dt)
MOD(3, -2)
POW(dt, t)
NULLIF(NULL, d)
POW(NULL, 0.5)
TRUNCATE(n & 7, 2e0)
NULLIF(t, f)
LOG(2e0, i)
LOG10(99999999999999999999)
IFNULL(t, NULL)
TRUNCATE(0.5, -2)
LEAST(f, f)
TRUNCATE(n & 7, dt)
TRUNCATE('1.5', t)
NVL2(n > 1, dt, d)
CONCAT(GREATEST(NULLIF(1, n & 7), LEAST(7, 2)), '|')
CONCAT(ROUND('2.5', 1), '|')
CONCAT(SQRT((d2 / f)), '|')
CONCAT((TRUNCATE(MOD(f, 1), 0) * ISNULL(ROUND(255))), '|')
CONCAT(SQRT((n - 2.50)), '|')
CONCAT(IFNULL(DEGREES(0.1e0), (n / 3 = 3)), '|')
CONCAT((IF(2e0, 1.5, 0) * CASE WHEN 2.50 THEN f WHEN 2.50 THEN '2.5' ELSE TRUE END), '|')
CONCAT((NULL / d), '|')
CONCAT(CEIL(CEIL(0.25)), '|')
CONCAT(RADIANS(MOD((NULL = d), TRUNCATE('1', 1))), '|')
CONCAT(COALESCE((d2 * t), SQRT(b)), '|')
CONCAT(CEIL(NULLIF(d, d)), '|')
CONCAT(CEIL((0 < 0)), '|')
CONCAT(ATAN(ISNULL(ABS(2.50))), '|')
CONCAT(ATAN2(LN(RADIANS(2.50)), (NULLIF(TRUE, i) + IFNULL(n, i))), '|')
CONCAT(ABS(('2.5' DIV n & 7)), '|')
CONCAT((TRUNCATE(SQRT(3), 0) / COS(MOD(t, '2.5'))), '|')
CONCAT(SQRT(255), '|')
CONCAT(LEAST(CEIL((d - d2)), COS(ROUND(2))), '|')
CONCAT(ISNULL(-(ATAN(f))), '|')
CONCAT((MOD(i, d2) - SQRT(0)), '|')
CONCAT(TRUNCATE(ROUND(7, 2), 0), '|')
CONCAT((2.50 < n), '|')
CONCAT(IFNULL(CASE WHEN TRUE THEN 0.25 WHEN n THEN d ELSE n & 7 END, ATAN(2e0)), '|')
CONCAT((b < t), '|')
CONCAT((IF(1.5, 1.5, 0) OR ('2.5' < n)), '|')
CONCAT(ROUND(SQRT(i)), '|')
CONCAT(COALESCE(i, 2e0), '|')
CONCAT(BIT_COUNT(BIT_COUNT(NULLIF(0.25, d / 7))), '|')
CONCAT((('2.5' = '1') + COS('abc')), '|')
CONCAT((CASE WHEN 2e0 THEN n WHEN 'abc' THEN n / 3 ELSE 3 END < (0 < d / 7)), '|')
CONCAT(MOD(SIGN(t), (NULL DIV d2)), '|')
CONCAT((LEAST(i, d) % DEGREES(n)), '|')
CONCAT(TRUNCATE((2 / 0.1e0), 1), '|')
CONCAT(((n + 7) * LEAST(TRUE, 2)), '|')
CONCAT(TRUNCATE(n / 3, 3), '|')
CONCAT(IF(IFNULL(1.5, '1'), SIN(2.50), -(0)), '|')
CONCAT(LN(DEGREES(d2)), '|')
CONCAT(SQRT(TRUNCATE(n / 3, 3)), '|')
CONCAT(GREATEST((b DIV 0.1e0), ATAN(2e0)), '|')
CONCAT(ATAN2((ROUND(1, 2) DIV DEGREES(n)), ATAN2((n / 3 % 2.50), IFNULL(d2, b))), '|')
CONCAT(-(TRUNCATE(BIT_COUNT(i), 1)), '|')
CONCAT(CEIL(COS('abc')), '|')
CONCAT(LEAST(n & 7, 2), '|')
CONCAT(TRUNCATE(CEIL(n / 3), 0), '|')
CONCAT(((255 - 7) - MOD('2.5', '1')), '|')
CONCAT(SIN(DEGREES(0)), '|')
CONCAT((n & 7 / 0.1e0), '|')
CONCAT(NULLIF('2.5', 0), '|')
CONCAT((SIN(3) <=> LN(t)), '|')
CONCAT(GREATEST(TRUNCATE(1.5, 0), ROUND(n / 3, 1)), '|')
CONCAT(CEIL(CASE WHEN n THEN NULL WHEN '1' THEN n / 3 ELSE 1 END), '|')
CONCAT((n & 7 OR 3), '|')
CONCAT(ATAN(RADIANS(n / 3)), '|')
CONCAT((ATAN(0.1e0) % IFNULL(2e0, b)), '|')
CONCAT((SIGN(n & 7) <=> MOD(0.25, n / 3)), '|')
CONCAT(SIGN(RADIANS(2)), '|')
CONCAT(ISNULL(IF(t, d2, f)), '|')
CONCAT(((TRUE DIV 0) + LEAST(1.5, 0)), '|')
CONCAT(SIGN(0.1e0), '|')
CONCAT(ATAN2(1.5, TRUE), '|')
CONCAT((NULL / n / 3), '|')
CONCAT(ROUND(b, 1), '|')
CONCAT((LEAST(n, 255) * ROUND(d)), '|')
CONCAT(IFNULL(IF(d2, t, TRUE), GREATEST(2e0, f)), '|')
CONCAT((255 * 1.5), '|')
CONCAT(SIGN(IFNULL(1.5, d2)), '|')
CONCAT((SIN(0) = COALESCE(d2, 'abc')), '|')
CONCAT(ROUND((0 = 3), -1), '|')
CONCAT((NULLIF(n & 7, b) DIV COALESCE(1.5, 2)), '|')
CONCAT(GREATEST(IF(i, NULL, 0.25), COS(0.1e0)), '|')
CONCAT(MOD('abc', 2.50), '|')
CONCAT(COALESCE((ATAN2(b, n & 7) - LEAST(0, 2e0)), ATAN(GREATEST(2e0, 1))), '|')
CONCAT((n / 3 OR 0.1e0), '|')
CONCAT((NULLIF(n, n & 7) / SQRT(TRUE)), '|')
CONCAT(FLOOR(SQRT(n & 7)), '|')
CONCAT(TRUNCATE(IF(d2, 2, 2.50), 3), '|')
CONCAT(SQRT(ATAN(3)), '|')
CONCAT((0 < 255), '|')
CONCAT(TRUNCATE(d2, 3), '|')
CONCAT(((1 + 0.1e0) / (d / 7 % NULL)), '|')
CONCAT(ROUND(NULLIF(i, 0)), '|')
CONCAT(ABS((0 = d2)), '|')
CONCAT(DEGREES(ROUND(n, 0)), '|')
CONCAT(LN(NULL), '|')
CONCAT(IF((255 = NULL), ABS(1.5), (f = n)), '|')
CONCAT(MOD('2.5', 2.50), '|')
CONCAT((n < 0.25), '|')
CONCAT(GREATEST(RADIANS(1.5), LN(n)), '|')
CONCAT(((CASE WHEN 0 THEN 2.50 WHEN n THEN '2.5' ELSE '2.5' END = FLOOR(3)) % ABS(ROUND(b))), '|')
CONCAT(ATAN2(i, n & 7), '|')
CONCAT(SIN((2e0 < 2e0)), '|')
CONCAT(ROUND(-(2.50)), '|')
CONCAT(IF(n & 7, NULL, 'abc'), '|')
CONCAT(TRUNCATE(LN(IFNULL(n, 1)), -1), '|')
CONCAT(SIN(COS(d / 7)), '|')
CONCAT((3 % 0.1e0), '|')
CONCAT((n <=> n), '|')
CONCAT(LN(n), '|')
CONCAT((TRUNCATE(2.50, -1) < CASE WHEN b THEN 255 WHEN 7 THEN TRUE ELSE 1.5 END), '|')
CONCAT((COALESCE(1, TRUE) / TRUNCATE(d / 7, -1)), '|')
CONCAT(MOD(LN(n & 7), RADIANS(d / 7)), '|')
CONCAT((SIGN('abc') < SIGN(2e0)), '|')
CONCAT(COS(1), '|')
CONCAT((0 OR 1.5), '|')
CONCAT(NULLIF('1', NULL), '|')
CONCAT((ROUND(n, -1) <=> (0.1e0 % f)), '|')
CONCAT(ROUND(SIGN(ATAN(7)), 0), '|')
CONCAT(ABS(2e0), '|')
CONCAT(ATAN2(FLOOR(3), (d / 7 % 2.50)), '|')
CONCAT((RADIANS(TRUNCATE(0.1e0, 3)) DIV SQRT(COS(n / 3))), '|')
CONCAT(SIN(ABS(ROUND('2.5', -1))), '|')
CONCAT(LEAST(RADIANS(3), CASE WHEN NULL THEN 1 WHEN n THEN 7 ELSE n END), '|')
CONCAT(SIGN(CASE WHEN b THEN TRUE WHEN 3 THEN 'abc' ELSE 'abc' END), '|')
CONCAT((ROUND((n % 1), 2) < (IF(t, 0, d / 7) < SQRT('abc'))), '|')
CONCAT(RADIANS(CEIL('abc')), '|')
CONCAT((255 / 'abc'), '|')
