-- LIKE and regular expressions. $ at the end of a text only, REGEXP_SUBSTR without a match, more arguments: test_texts.py
t LIKE t2
t LIKE CONCAT('%', t2, '%')
t LIKE 'a|%b|_c' ESCAPE '|'
t LIKE 'a^%b^_c' ESCAPE '^'
t LIKE 'a]%b]_c' ESCAPE ']'
t LIKE 'a-%b-_c' ESCAPE '-'
t LIKE 'a[%b[_c' ESCAPE '['
t LIKE 'a.%b._c' ESCAPE '.'
t LIKE 'a$%b$_c' ESCAPE '$'
t LIKE 'aü%büü_c' ESCAPE 'ü'
t LIKE 'aa%baa_c' ESCAPE 'a'
t LIKE 'a\\%b\\_c' ESCAPE '\\'
t LIKE 'x\\\\y'
t LIKE 'x\\\\\\y'
t LIKE '%\\\\%'
t LIKE '%\\'
t LIKE 'x\y'
t LIKE '\\x%'
t LIKE 'a\\bc'
t LIKE '|' ESCAPE '|'
t LIKE '||%' ESCAPE '|'
t LIKE '%|' ESCAPE '|'
t LIKE 'a%%%c'
t LIKE '%a%b%'
t LIKE '_bc'
t LIKE '___'
t LIKE '日__'
t LIKE '%本%'
t LIKE '👍%'
t LIKE 'ABC'
t LIKE '%\t%'
t LIKE '%\n'
t LIKE '% '
t LIKE ' %'
t LIKE '%.%'
t LIKE '%(%'
t LIKE NULL
NULL LIKE 'a'
t NOT LIKE '%b%'
n LIKE '1%'
d LIKE '%.5__'
f LIKE '1%'
b LIKE '1'
dt LIKE '2024-%'
t LIKE n
t LIKE 1
'abc' LIKE 'ABC'
'a' LIKE 'a '
'x%' LIKE 'x\%'
'xy' LIKE 'x\%'
'a\\' LIKE 'a\\\\'
'David!' LIKE '%D%v%'
'David_' LIKE 'David|_' ESCAPE '|'
10 LIKE '1%'
t LIKE '%''%'
CONCAT(t, '%') LIKE '%\%'
t COLLATE utf8mb4_bin LIKE 'a%'
(t LIKE 'a%') + 1
t REGEXP 'a'
t REGEXP '^a'
t REGEXP 'c$'
t REGEXP 'a|b'
t REGEXP '\\d'
t REGEXP '\\D'
t REGEXP '^\\d+$'
t REGEXP '\\w'
t REGEXP '^\\w+$'
t REGEXP '^\\W'
t REGEXP '\\s'
t REGEXP '^\\S+$'
t REGEXP '^[\\s\\S]*$'
t REGEXP '[[:alpha:]]'
t REGEXP '^[[:alnum:]]+$'
t REGEXP '[[:digit:]]{2}'
t REGEXP '[[:upper:]]'
t REGEXP '[[:lower:]]'
t REGEXP '[[:space:]]'
t REGEXP '[[:punct:]]'
t REGEXP '[[:xdigit:]]+'
t REGEXP '[^[:alnum:]]'
t REGEXP '[à-ü]'
t REGEXP '[-+]'
t REGEXP '[]a]'
t REGEXP '[^]a]'
t REGEXP '\\.'
t REGEXP '[.]'
t REGEXP '\\\\'
t REGEXP '[\\\\]'
t REGEXP '\\"'
t REGEXP '\\{'
t REGEXP '^.{3}$'
t REGEXP '^.{10,}$'
t REGEXP '(ab)+c?'
t REGEXP '(?:ab)+c?'
t REGEXP '(?i)ABC'
t REGEXP '(?i)GRÜSSE|GRÜßE'
t REGEXP '^$'
t REGEXP '\\p{Lu}'
t REGEXP '\\P{L}'
t REGEXP '\\p{Han}'
t REGEXP '\\x41'
t REGEXP '\\x{65E5}'
t REGEXP '\\t'
t REGEXP '\\A\\d'
t REGEXP 'c\\z'
t REGEXP '本'
t REGEXP '^..$'
t REGEXP 'a.*i'
t REGEXP 'a.*?b'
t RLIKE '^[A-Z]+$'
t NOT RLIKE '^[A-Z]+$'
t NOT REGEXP '[0-9]'
t REGEXP '^-?[0-9]+(\\.[0-9]+)?$'
n REGEXP '^-'
d REGEXP '\\.5'
f REGEXP 'e'
b REGEXP '1'
dt REGEXP '^2024'
NULL REGEXP 'a'
t REGEXP NULL
CONCAT(t, 'x') REGEXP 'x$'
t REGEXP '^[0-9]{4}-[0-9]{2}-[0-9]{2}'
IF(t REGEXP '[0-9]', 1, 0)
COALESCE(REGEXP_SUBSTR(t, '[0-9]+'), '')
REGEXP_SUBSTR(t, '\\d*')
COALESCE(REGEXP_SUBSTR(t, 'ü.e'), '')
COALESCE(REGEXP_SUBSTR(t, '^.'), '')
COALESCE(REGEXP_SUBSTR(d, '[.][0-9]+'), '')
REGEXP_SUBSTR(t, '.*')
REGEXP_SUBSTR(t, NULL)
REGEXP_SUBSTR(NULL, 'a')
REGEXP_SUBSTR('abc 123 def', '[0-9]+') + 1
REGEXP_SUBSTR('aab', 'a|aa')
REGEXP_INSTR(t, '[0-9]')
REGEXP_INSTR(t, 'b')
REGEXP_INSTR(t, '本')
REGEXP_INSTR(t, '^a')
REGEXP_INSTR(t, 'x*')
REGEXP_INSTR(n, '[1-9]')
REGEXP_INSTR(t, NULL)
REGEXP_INSTR(NULL, 'a')
REGEXP_INSTR(t, '[0-9]') > 0
REGEXP_INSTR(CONCAT(t, '5'), '[0-9]')
REGEXP_REPLACE(t, '^[a-z]', '#')
REGEXP_REPLACE(t, '^\\s+', '')
REGEXP_REPLACE(t, '^(.)(.)', '\\2\\1')
REGEXP_REPLACE(t, '^a', NULL)
REGEXP_REPLACE(t, NULL, 'x')
REGEXP_REPLACE(NULL, '^a', 'x')
REGEXP_REPLACE(n, '^-', 'minus ')
