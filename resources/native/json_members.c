/* Select members of JSON documents by path, for expressions: a text for each document, equal to the result of
 * kpipe/expressions/mysql/json/document_functions.py.
 *
 * A document that fails this fast path (invalid, or with a value whose text must be computed) gets status IS_LOOK and falls
 * back to exact code in Python. Documents are valid UTF-8. The last value of a duplicate name counts.
 *
 * Grammar: RFC 8259.
 */
#include "columns.h"
#include "json_text.h"

#define DEEPEST 100 /* equal to MOST_DEPTH in kpipe/expressions/mysql/json/documents.py */
#define LONGEST_NAME 256 /* bytes of a name, escapes not decoded */

/* A step of a path. KEY_OR_PLACE: a member name, or an array index if `place` is set; KEY: a member name only;
   PLACE: an array index, where any other value counts as an array of one item. */
enum { KEY_OR_PLACE = 0, KEY = 1, PLACE = 2 };

/* The operations of document_functions.py, in the order of native_members.py. */
enum { GET = 0, STRING = 1, REAL = 2, BIGINT = 3, EXTRACT = 4, EXTRACT_TEXT = 5, UNQUOTE = 6 };

enum { IS_NULL = 0, IS_TEXT = 1, IS_LOOK = 2 };

typedef struct {
    const char *name;
    size_t length;
    int kind;
    int64_t place; /* -1: none */
} step;

typedef struct {
    const char *p, *end, *limit; /* the document is [p, end); memory up to limit is readable */
} reader;

static inline void space(reader *r) {
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\t' || *r->p == '\r')) r->p++;
}

static inline int next_is(reader *r, char c) {
    space(r);
    if (r->p >= r->end || *r->p != c) return 0;
    r->p++;
    return 1;
}

static inline int word(reader *r, const char *said, size_t length) {
    if ((size_t)(r->end - r->p) < length || memcmp(r->p, said, length)) return FAIL;
    r->p += length;
    return OK;
}

/* Read a string from after its opening quote; write it without quotes, with escapes decoded. */
static int plain_text(reader *r, char **to) {
    for (;;) {
        int high;
        const char *from = r->p, *stop = text_end(from, r->end, r->limit, &high);
        size_t length = (size_t)(stop - from);
        if (stop >= r->end) return FAIL;
        if (to) {
            memcpy(*to, from, length);
            *to += length;
        }
        r->p = stop;
        if (*stop == '"') {
            r->p++;
            return OK;
        }
        char said[4];
        if (*stop != '\\' || !escape(&r->p, r->end, said, &length)) return FAIL;
        if (to) {
            memcpy(*to, said, length);
            *to += length;
        }
    }
}

/* Read a string from after its opening quote; write it with quotes, and with the escapes that JSON requires. */
static int quoted_text(reader *r, char **to) {
    static const char hex[] = "0123456789abcdef", from[] = "\b\f\n\r\t\"\\", said[] = "bfnrt\"\\";
    *(*to)++ = '"';
    for (;;) {
        int high;
        const char *start = r->p, *stop = text_end(start, r->end, r->limit, &high);
        size_t length = (size_t)(stop - start);
        if (stop >= r->end) return FAIL;
        memcpy(*to, start, length);
        *to += length;
        r->p = stop;
        if (*stop == '"') {
            r->p++;
            *(*to)++ = '"';
            return OK;
        }
        char c[4];
        if (*stop != '\\' || !escape(&r->p, r->end, c, &length)) return FAIL;
        const char *short_one = length == 1 && c[0] ? strchr(from, c[0]) : NULL;
        if (short_one) {
            *(*to)++ = '\\';
            *(*to)++ = said[short_one - from];
        } else if (length == 1 && (unsigned char)c[0] < 0x20) {
            memcpy(*to, "\\u00", 4);
            (*to)[4] = hex[c[0] >> 4];
            (*to)[5] = hex[c[0] & 15];
            *to += 6;
        } else {
            memcpy(*to, c, length);
            *to += length;
        }
    }
}

static int number(reader *r) {
    const char *p = r->p, *end = r->end;
    p += p < end && *p == '-';
    const char *first = p;
    while (p < end && *p >= '0' && *p <= '9') p++;
    if (p == first || (*first == '0' && p - first > 1)) return FAIL;
    if (p < end && *p == '.') {
        const char *point = ++p;
        while (p < end && *p >= '0' && *p <= '9') p++;
        if (p == point) return FAIL;
    }
    if (p < end && (*p | 32) == 'e') {
        p++;
        p += p < end && (*p == '+' || *p == '-');
        const char *exponent = p;
        while (p < end && *p >= '0' && *p <= '9') p++;
        if (p == exponent) return FAIL;
    }
    r->p = p;
    return OK;
}

/* Parse any value strictly, without output. */
static int skip(reader *r, int depth) {
    space(r);
    if (r->p >= r->end) return FAIL;
    switch (*r->p) {
    case 'n': return word(r, "null", 4);
    case 't': return word(r, "true", 4);
    case 'f': return word(r, "false", 5);
    case '"': r->p++; return plain_text(r, NULL);
    case '[':
        r->p++;
        if (depth >= DEEPEST) return FAIL;
        if (next_is(r, ']')) return OK;
        do {
            if (!skip(r, depth + 1)) return FAIL;
        } while (next_is(r, ','));
        return next_is(r, ']');
    case '{':
        r->p++;
        if (depth >= DEEPEST) return FAIL;
        if (next_is(r, '}')) return OK;
        do {
            if (!next_is(r, '"') || !plain_text(r, NULL) || !next_is(r, ':') || !skip(r, depth + 1)) return FAIL;
        } while (next_is(r, ','));
        return next_is(r, '}');
    default: return number(r);
    }
}

/* Read a name from after its opening quote to after the closing one; `same`: it is the name of this step. */
static int is_name(reader *r, const step *way, int *same) {
    int high;
    const char *name = r->p, *stop = text_end(name, r->end, r->limit, &high);
    if (stop < r->end && *stop == '"') {
        *same = (size_t)(stop - name) == way->length && !memcmp(name, way->name, way->length);
        r->p = stop + 1;
        return OK;
    }
    char decoded[LONGEST_NAME], *to = decoded;
    if (!plain_text(r, NULL) || r->p - name > LONGEST_NAME) return FAIL;
    r->p = name;
    *same = plain_text(r, &to) && (size_t)(to - decoded) == way->length && !memcmp(decoded, way->name, way->length);
    return OK;
}

/* Parse a whole value; `found`: the value at the path, NULL if there is none. */
static int find(reader *r, const step *way, int count, int depth, const char **found) {
    *found = NULL;
    space(r);
    if (r->p >= r->end) return FAIL;
    while (count && way->kind == PLACE && *r->p != '[') {
        if (way->place) return skip(r, depth);
        way++;
        count--;
    }
    if (!count) {
        *found = r->p;
        return skip(r, depth);
    }
    if (*r->p == '{') {
        r->p++;
        if (depth >= DEEPEST) return FAIL;
        if (next_is(r, '}')) return OK;
        do {
            int same;
            if (!next_is(r, '"') || !is_name(r, way, &same) || !next_is(r, ':')) return FAIL;
            if (!(same ? find(r, way + 1, count - 1, depth + 1, found) : skip(r, depth + 1))) return FAIL;
        } while (next_is(r, ','));
        return next_is(r, '}');
    }
    if (*r->p == '[' && way->kind != KEY && way->place >= 0) {
        int64_t at = 0;
        r->p++;
        if (depth >= DEEPEST) return FAIL;
        if (next_is(r, ']')) return OK;
        do {
            if (!(at++ == way->place ? find(r, way + 1, count - 1, depth + 1, found) : skip(r, depth + 1))) return FAIL;
        } while (next_is(r, ','));
        return next_is(r, ']');
    }
    return skip(r, depth);
}

/* Write a validated value without spaces. FAIL (to exact code): an object has a duplicate name, or more names than MOST_NAMES. */
static int written(reader *r, char **to) {
    space(r);
    const char *start = r->p;
    if (*start == '"') {
        r->p++;
        return quoted_text(r, to);
    }
    if (*start == '[') {
        r->p++;
        *(*to)++ = '[';
        if (!next_is(r, ']')) {
            do {
                if (!written(r, to)) return FAIL;
                *(*to)++ = ',';
            } while (next_is(r, ','));
            (*to)--;
            if (!next_is(r, ']')) return FAIL;
        }
        *(*to)++ = ']';
        return OK;
    }
    if (*start == '{') {
        name_set names;
        names.seen = 0;
        names.count = 0;
        r->p++;
        *(*to)++ = '{';
        if (!next_is(r, '}')) {
            do {
                const char *name = *to; /* compared as written here: then equal names have equal bytes */
                if (!next_is(r, '"') || !quoted_text(r, to) || !add_name(&names, name, (size_t)(*to - name))) return FAIL;
                if (!next_is(r, ':')) return FAIL;
                *(*to)++ = ':';
                if (!written(r, to)) return FAIL;
                *(*to)++ = ',';
            } while (next_is(r, ','));
            (*to)--;
            if (!next_is(r, '}')) return FAIL;
        }
        *(*to)++ = '}';
        return OK;
    }
    if (!skip(r, 0)) return FAIL;
    memcpy(*to, start, (size_t)(r->p - start));
    *to += r->p - start;
    return OK;
}

/* Write a number if DuckDB casts its text exactly: REAL: short with a small exponent; BIGINT: at most 18 digits. */
static int numeral(reader *r, int form, char **to) {
    const char *start = r->p, *stop;
    if (!number(r)) return FAIL;
    size_t length = (size_t)(r->p - start);
    if (form == BIGINT) {
        for (stop = start + (*start == '-'); stop < r->p; stop++)
            if (*stop < '0' || *stop > '9') return FAIL;
        if (length > 18 || (*start == '-' && start[1] == '0')) return FAIL;
    } else {
        for (stop = start; stop < r->p && (*stop | 32) != 'e'; stop++)
            ;
        size_t exponent = (size_t)(r->p - stop); /* including e */
        if (stop - start > 20 || exponent > (exponent && (stop[1] == '+' || stop[1] == '-') ? 4 : 3)) return FAIL;
    }
    memcpy(*to, start, length);
    *to += length;
    return OK;
}

static inline int copied(char **to, const char *said, size_t length) {
    memcpy(*to, said, length);
    *to += length;
    return OK;
}

static int result(reader *r, int form, char **to) {
    char c = *r->p;
    if (c == 'n' && form <= BIGINT) return -1;
    if (form == GET || form == EXTRACT) return written(r, to);
    if (form == STRING || form == EXTRACT_TEXT) {
        if (c != '"') return written(r, to);
        r->p++;
        return plain_text(r, to);
    }
    if (c == '"') return form == REAL ? FAIL : copied(to, "0", 1);
    if (c == 't') return copied(to, form == REAL ? "1.0" : "1", form == REAL ? 3 : 1);
    if (c == 'f' || c == '[' || c == '{') return copied(to, form == REAL ? "0.0" : "0", form == REAL ? 3 : 1);
    return numeral(r, form, to);
}

/* Process one document and advance `to`. The text is at most as long as the document, or three bytes. */
static int one(reader r, const step *way, int count, int form, char **to) {
    char *before = *to;
    if (form == UNQUOTE) {
        size_t length = (size_t)(r.end - r.p);
        if (length < 2 || *r.p != '"' || r.end[-1] != '"') {
            copied(to, r.p, length);
            return IS_TEXT;
        }
        r.p++;
        if (plain_text(&r, to) && r.p == r.end) return IS_TEXT;
        *to = before;
        return IS_LOOK;
    }
    const char *found;
    if (!find(&r, way, count, 0, &found) || (space(&r), r.p != r.end)) return IS_LOOK;
    if (!found) return IS_NULL;
    r.p = found;
    int made = result(&r, form, to);
    if (made == OK) return IS_TEXT;
    *to = before;
    return made < 0 ? IS_NULL : IS_LOOK;
}

static inline int is_null(const uint8_t *valid, int64_t at) { return valid && !(valid[at >> 3] >> (at & 7) & 1); }

/* Apply an operation to each row: a list of a document and, if `path` is not NULL, that path.
 *
 * data, texts, valid: Arrow's buffers of all texts. `valid` may be NULL: no text is null; its first bit is `bit`.
 * rows: index of the first text of each row's list, then the end of the last list.
 * steps: kind, place and length of the name of each step of the path; `names` has the names concatenated.
 * ends, out: offsets and bytes of the results. `out` has room for all documents and three more bytes for each.
 * status: IS_NULL, IS_TEXT or IS_LOOK for each row.
 */
void kp_json_members(const char *data, const int32_t *texts, const uint8_t *valid, int64_t bit, const int32_t *rows, int64_t count,
                     const char *path, int64_t path_length, const int32_t *steps, int64_t step_count, const char *names, int form,
                     int32_t *ends, char *out, uint8_t *status) {
    step way[DEEPEST + 1];
    int wanted = path ? 2 : 1, steps_used = step_count > DEEPEST ? DEEPEST + 1 : (int)step_count;
    const char *limit = data + texts[rows[count]];
    char *to = out;
    for (int i = 0; i < steps_used; i++) {
        way[i] = (step){names, (size_t)steps[3 * i + 2], steps[3 * i], steps[3 * i + 1]};
        names += way[i].length;
    }
    ends[0] = 0;
    for (int64_t at = 0; at < count; at++) {
        int64_t item = rows[at];
        int known = rows[at + 1] - item == wanted && step_count <= DEEPEST;
        if (known && path)
            known = !is_null(valid, bit + item + 1) && texts[item + 2] - texts[item + 1] == path_length &&
                    !memcmp(data + texts[item + 1], path, (size_t)path_length);
        if (!known) {
            status[at] = IS_LOOK;
        } else if (is_null(valid, bit + item)) {
            status[at] = IS_NULL;
        } else {
            const char *end = data + texts[item + 1];
            reader r = {data + texts[item], end, limit - end > 16 ? end + 16 : limit};
            status[at] = (uint8_t)one(r, way, steps_used, form, &to);
        }
        ends[at + 1] = (int32_t)(to - out);
    }
}
