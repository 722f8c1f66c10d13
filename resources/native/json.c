/* Decode payloads of one JSON object each to columns, strictly, without an intermediate object.
 *
 * A payload that fails this fast path (a value of another type, an escape in a name, a duplicate or unknown member) gets status
 * LOOK or UNKNOWN; its row is discarded, and exact code in Python decides. So this file may reject valid payloads, but must
 * never accept one that exact code rejects or decodes differently: tests/resources/decode compares the two.
 *
 * Grammar: RFC 8259. Rounding of numbers: nearest, ties to even (IEEE 754), as Python's float().
 */
#define _GNU_SOURCE
#include <float.h>
#include <locale.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif
#include "columns.h"
#include "json_text.h"
#include "new_members.h"

#define DEEPEST 200 /* levels of lists and objects including the payload; equal to the limit in kpipe/schema/nesting.py */
#define LONGEST_NAME 255

typedef struct {
    decoder base;
    locale_t c_locale;
    int unknown;
    int skips; /* unknown members are ignored; where there are some inside a value, that is noted */
    int notes; /* those of the payload itself are noted, too */
    int inside;
    int64_t payload;
    new_members noted;
} json;

/* Values that a TEXT column accepts (its width): strings only; any value as compact JSON; strings, and other values as JSON. */
enum { TEXTS = 0, AS_JSON = 1, ANYTHING = 2 };

/* Check of ignored members in a STRUCT (its width). ON_THE_WAY: an object on the path to a value; no check, and no note. VALUE: a
   member that may be a field in another case goes to exact code. VALUE_BEYOND_ASCII: the same, and fields have letters beyond
   ASCII, so that every ignored member goes to exact code. */
enum { ON_THE_WAY = 0, VALUE = 1, VALUE_BEYOND_ASCII = 2 };

/* ---- scanning ------------------------------------------------------------------------------------------------- */

typedef struct {
    json *d;
    const char *p, *end;  /* the payload: [p, end) */
    const char *limit;    /* end of the whole buffer */
} scan;

static inline void space(scan *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\t' || *s->p == '\r')) s->p++;
}

static inline int next_is(scan *s, char c) {
    space(s);
    if (s->p >= s->end || *s->p != c) return 0;
    s->p++;
    return 1;
}

static int text(scan *s, column *c) {
    if (!next_is(s, '"') || !slot(&s->d->base, c)) return FAIL;
    size_t before = c->used;
    for (;;) {
        int high = 0;
        const char *from = s->p, *to = text_end(from, s->end, s->limit, &high);
        size_t length = (size_t)(to - from);
        if (to >= s->end || (high && !kp_is_utf8((const uint8_t *)from, (const uint8_t *)to))) break;
        if (!reserve(&s->d->base, c, length + 4)) break;
        memcpy(c->values + c->used, from, length);
        c->used += length;
        s->p = to;
        if (*to == '"') {
            s->p++;
            c->valid[c->rows] = 1;
            c->ends[c->rows++] = (int32_t)c->used;
            return OK;
        }
        if (*to != '\\' || !escape(&s->p, s->end, c->values + c->used, &length)) break;
        c->used += length;
    }
    c->used = before;
    return FAIL;
}

static int integer(scan *s, column *c) {
    space(s);
    const char *p = s->p;
    int negative = p < s->end && *p == '-';
    p += negative;
    if (p >= s->end || *p < '0' || *p > '9') return FAIL;
    const char *first = p;
    uint64_t value = 0;
    while (p < s->end && *p >= '0' && *p <= '9') value = value * 10 + (uint64_t)(*p++ - '0');
    if (p - first > 19 || (*first == '0' && p - first > 1)) return FAIL; /* 19 digits never overflow */
    if (p < s->end && (*p == '.' || (*p | 32) == 'e')) return FAIL;
    if (value > (negative ? c->least : c->most) || !slot(&s->d->base, c)) return FAIL;
    if (negative) value = 0 - value;
    char *to = c->values + c->rows * c->width;
    switch (c->width) { /* the low bytes of value, in any byte order */
    case 1: { uint8_t v = (uint8_t)value; memcpy(to, &v, 1); break; }
    case 2: { uint16_t v = (uint16_t)value; memcpy(to, &v, 2); break; }
    case 4: { uint32_t v = (uint32_t)value; memcpy(to, &v, 4); break; }
    default: memcpy(to, &value, 8);
    }
    c->valid[c->rows++] = 1;
    s->p = p;
    return OK;
}

static const double TENS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                              1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* Compute the number if the fast path rounds correctly (Clinger 1990: both operands are exact, so one operation rounds once;
 * with 64 bits of mantissa the result is certain unless it is close to the middle between two doubles). */
static int quick(uint64_t digits, int64_t power, double *out) {
    if (power < -22 || power > 22) return 0;
    if (digits <= (1ull << 53)) {
        *out = power < 0 ? (double)digits / TENS[-power] : (double)digits * TENS[power];
        return 1;
    }
#if LDBL_MANT_DIG == 64 && (defined(__x86_64__) || defined(__i386__))
    long double wide = power < 0 ? (long double)digits / TENS[-power] : (long double)digits * TENS[power];
    uint64_t mantissa;
    memcpy(&mantissa, &wide, 8);
    unsigned rest = (unsigned)(mantissa & 0x7ff);
    if (rest < 0x3fe || rest > 0x402) {
        *out = (double)wide;
        return 1;
    }
#endif
    return 0;
}

/* Exponents saturate here: far beyond the digits that a payload can have, so that no fraction compensates the exponent. */
#define MOST_EXPONENT ((int64_t)1 << 56)

/* Integers of more digits go to exact code: Python rejects those of more than 4300. */
#define MOST_DIGITS 4000

static int real(scan *s, column *c) {
    space(s);
    const char *start = s->p, *p = start, *end = s->end;
    int negative = p < end && *p == '-';
    int64_t power = 0, digits = 0; /* large enough for a payload's length plus the largest exponent */
    uint64_t value = 0;
    p += negative;
    if (p >= end || *p < '0' || *p > '9') return FAIL;
    const char *first = p;
    for (; p < end && *p >= '0' && *p <= '9'; p++) { value = value * 10 + (uint64_t)(*p - '0'); digits++; }
    if (*first == '0' && p - first > 1) return FAIL;
    if (digits > MOST_DIGITS && (p >= end || (*p != '.' && (*p | 32) != 'e'))) return FAIL;
    if (p < end && *p == '.') {
        const char *point = ++p;
        for (; p < end && *p >= '0' && *p <= '9'; p++) { value = value * 10 + (uint64_t)(*p - '0'); digits++; }
        if (p == point) return FAIL;
        power = -(int64_t)(p - point);
    }
    if (p < end && (*p | 32) == 'e') {
        int sign = 1;
        int64_t exponent = 0;
        p++;
        if (p < end && (*p == '+' || *p == '-')) sign = *p++ == '-' ? -1 : 1;
        if (p >= end || *p < '0' || *p > '9') return FAIL;
        for (; p < end && *p >= '0' && *p <= '9'; p++)
            if (exponent < MOST_EXPONENT) exponent = exponent * 10 + (*p - '0');
        power += sign * exponent;
    }
    if (!slot(&s->d->base, c)) return FAIL;
    double number;
    const char *most = first;
    while (most < p && (*most == '0' || *most == '.')) most++; /* leading zeros do not count */
    int64_t counted = digits - (most - first - (first[1] == '.' && most > first + 1 ? 1 : 0));
    if (counted > 19 || !quick(value, power, &number)) {
        char *stop;
        number = strtod_l(start, &stop, s->d->c_locale);
        if (stop != p) return FAIL;
    } else if (negative) {
        number = -number;
    }
    memcpy(c->values + c->rows * 8, &number, 8);
    c->valid[c->rows++] = 1;
    s->p = p;
    return OK;
}

/* Append to the text that is being built; no column: the value is ignored. */
static int put(scan *s, column *c, const char *from, size_t length) {
    if (!c) return OK;
    if (!reserve(&s->d->base, c, length + 8)) return FAIL;
    memcpy(c->values + c->used, from, length);
    c->used += length;
    return OK;
}

/* Copy a number as written. FAIL for values that Python changes: it rejects long integers, and reads -0 as 0. */
static int any_number(scan *s, column *c) {
    const char *p = s->p, *end = s->end, *start = p;
    int negative = p < end && *p == '-', whole = 1;
    p += negative;
    const char *first = p;
    while (p < end && *p >= '0' && *p <= '9') p++;
    if (p == first || (*first == '0' && p - first > 1)) return FAIL;
    int zero = *first == '0';
    long digits = p - first;
    if (p < end && *p == '.') {
        const char *point = ++p;
        while (p < end && *p >= '0' && *p <= '9') p++;
        if (p == point) return FAIL;
        whole = 0;
    }
    if (p < end && (*p | 32) == 'e') {
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        const char *exponent = p;
        while (p < end && *p >= '0' && *p <= '9') p++;
        if (p == exponent) return FAIL;
        whole = 0;
    }
    if (whole && ((negative && zero) || digits > MOST_DIGITS)) return FAIL;
    s->p = p;
    return put(s, c, start, (size_t)(p - start));
}

/* Write a string with quotes, as json.dumps(ensure_ascii=False) does; the opening quote has been read. */
static int any_text(scan *s, column *c) {
    if (!put(s, c, "\"", 1)) return FAIL;
    for (;;) {
        int high = 0;
        const char *from = s->p, *to = text_end(from, s->end, s->limit, &high);
        if (to >= s->end || (high && !kp_is_utf8((const uint8_t *)from, (const uint8_t *)to))) return FAIL;
        if (!put(s, c, from, (size_t)(to - from))) return FAIL;
        s->p = to;
        if (*to == '"') {
            s->p++;
            return put(s, c, "\"", 1);
        }
        if (*to != '\\') return FAIL;
        char said[4];
        size_t length;
        const char *begin = s->p;
        if (!escape(&s->p, s->end, said, &length)) return FAIL;
        if (length == 1 && ((unsigned char)said[0] < 0x20 || said[0] == '"' || said[0] == '\\')) {
            if (begin[1] == 'u') return FAIL; /* json.dumps writes another escape */
            if (!put(s, c, begin, 2)) return FAIL;
        } else if (!put(s, c, said, length)) {
            return FAIL;
        }
    }
}

static inline int literal(scan *s, const char *word, size_t length);

/* Parse any value strictly, and write it as compact JSON. */
static int any(scan *s, column *c, int depth) {
    space(s);
    if (s->p >= s->end || (depth >= DEEPEST && (*s->p | 0x20) == '{')) return FAIL; /* [ or { */
    switch (*s->p) {
    case 'n': return literal(s, "null", 4) && put(s, c, "null", 4);
    case 't': return literal(s, "true", 4) && put(s, c, "true", 4);
    case 'f': return literal(s, "false", 5) && put(s, c, "false", 5);
    case '"': s->p++; return any_text(s, c);
    case '[':
        s->p++;
        if (!put(s, c, "[", 1)) return FAIL;
        if (!next_is(s, ']')) {
            do {
                if (!any(s, c, depth + 1)) return FAIL;
                if (next_is(s, ']')) break;
                if (!next_is(s, ',') || !put(s, c, ",", 1)) return FAIL;
            } while (1);
        }
        return put(s, c, "]", 1);
    case '{': {
        name_set names;
        names.seen = 0;
        names.count = 0;
        s->p++;
        if (!put(s, c, "{", 1)) return FAIL;
        if (!next_is(s, '}')) {
            do {
                if (!next_is(s, '"')) return FAIL;
                int high = 0;
                const char *name = s->p, *to = text_end(name, s->end, s->limit, &high);
                if (to >= s->end || *to != '"' || (high && !kp_is_utf8((const uint8_t *)name, (const uint8_t *)to)))
                    return FAIL;
                s->p = to + 1;
                if (!add_name(&names, name, (size_t)(to - name)) || !put(s, c, name - 1, (size_t)(to - name) + 2)) return FAIL;
                if (!next_is(s, ':') || !put(s, c, ":", 1) || !any(s, c, depth + 1)) return FAIL;
                if (next_is(s, '}')) break;
                if (!next_is(s, ',') || !put(s, c, ",", 1)) return FAIL;
            } while (1);
        }
        return put(s, c, "}", 1);
    }
    default: return any_number(s, c);
    }
}

/* Write a value as JSON to a column of texts. */
static int as_json(scan *s, column *c, int depth) {
    if (!slot(&s->d->base, c)) return FAIL;
    size_t before = c->used;
    if (!any(s, c, depth)) {
        c->used = before;
        return FAIL;
    }
    c->valid[c->rows] = 1;
    c->ends[c->rows++] = (int32_t)c->used;
    return OK;
}

static inline int literal(scan *s, const char *word, size_t length) {
    if ((size_t)(s->end - s->p) < length || memcmp(s->p, word, length)) return 0;
    s->p += length;
    return 1;
}

static int value(scan *s, column *c, int depth);

/* ---- members of an object -------------------------------------------------------------------------------------- */

#define FEW 4 /* names of so few fields are compared one by one */

static inline char lowered(char c) { return c >= 'A' && c <= 'Z' ? (char)(c | 32) : c; }

/* Return a hash that is equal for names that differ by the case of ASCII letters only. */
static inline uint64_t name_hash(const char *name, size_t length) {
    uint64_t hash = length, word;
    for (;; name += 8, length -= 8) {
        word = 0;
        memcpy(&word, name, length < 8 ? length : 8);
        hash = (hash ^ (word | 0x2020202020202020u)) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
        if (length <= 8) return hash;
    }
}

/* Return the mask of the hash table: it has a power of two of places, at least twice as many as the fields. */
static inline uint64_t place_mask(const column *c) {
    uint64_t places = 4 * FEW;
    while (places < (uint64_t)c->count * 2) places *= 2;
    return places - 1;
}

/* Prepare the STRUCTs at and below a column for `member` and `members`. */
static int index_names(column *c) {
    if (c->kind == STRUCT && c->count && !(c->filled = malloc((size_t)c->count * sizeof(int32_t)))) return FAIL;
    if (c->kind == STRUCT && c->count > FEW) {
        c->mask = place_mask(c);
        if (!(c->places = malloc((size_t)(c->mask + 1) * sizeof(int32_t)))) return FAIL;
        memset(c->places, 0xff, (size_t)(c->mask + 1) * sizeof(int32_t));
        for (int i = 0; i < c->count; i++) {
            uint64_t at = name_hash(c->children[i].name, c->children[i].name_length) & c->mask;
            while (c->places[at] >= 0) at = (at + 1) & c->mask;
            c->places[at] = i;
        }
    }
    for (int i = 0; i < c->count; i++)
        if (!index_names(&c->children[i])) return FAIL;
    return OK;
}

static inline int same(const column *c, const char *name, size_t length) {
    return c->name_length == length && !memcmp(c->name, name, length);
}

static inline int similar(const column *c, const char *name, size_t length) {
    if (c->name_length != length) return 0;
    for (size_t at = 0; at < length; at++)
        if (lowered(name[at]) != lowered(c->name[at])) return 0;
    return 1;
}

/* Return the index of the field of that name, or -1. `hint`: the field that probably comes next. */
static inline int member(const column *c, const char *name, size_t length, int hint) {
    if (hint < c->count && same(&c->children[hint], name, length)) return hint;
    if (!c->places) {
        for (int i = 0; i < c->count; i++)
            if (same(&c->children[i], name, length)) return i;
        return -1;
    }
    for (uint64_t at = name_hash(name, length) & c->mask; c->places[at] >= 0; at = (at + 1) & c->mask)
        if (same(&c->children[c->places[at]], name, length)) return c->places[at];
    return -1;
}

/* Return whether a member that is not a field may be one in another case, or has a name that no field can have. */
static int doubtful(const column *c, const char *name, size_t length, int high) {
    if (c->width == ON_THE_WAY) return 0;
    if (c->width == VALUE_BEYOND_ASCII || high || !length || length > LONGEST_NAME) return 1;
    if (!c->places) {
        for (int i = 0; i < c->count; i++)
            if (similar(&c->children[i], name, length)) return 1;
        return 0;
    }
    for (uint64_t at = name_hash(name, length) & c->mask; c->places[at] >= 0; at = (at + 1) & c->mask)
        if (similar(&c->children[c->places[at]], name, length)) return 1;
    return 0;
}

/* Note a member of the payload that has no column. FAIL: also if it is a duplicate. */
static int note(scan *s, const char *name, size_t length, int depth) {
    json *d = s->d;
    int64_t index = note_name(&d->noted, name, length, name_hash(name, length), d->payload, &d->base.broken);
    if (index < 0 || !next_is(s, ':')) return FAIL;
    space(s);
    const char *from = s->p;
    if (!any(s, NULL, depth)) return FAIL;
    return note_member(&d->noted, d->payload, index * 8 + type_noted(from, s->p), &d->base.broken);
}

/* Read the members of an object into the children. The caller fills the object's own slot, or discards the members. Children
 * that are absent stay behind: see `fill`. So the time is that of the members, not of the fields. */
static int members(scan *s, column *c, int64_t row, int depth) {
    int hint = 0;
    name_set others;
    others.seen = 0;
    others.count = 0;
    c->fills = 0;
    if (!next_is(s, '{')) return FAIL;
    space(s);
    if (next_is(s, '}')) return OK;
    do {
        int high = 0;
        if (!next_is(s, '"')) return FAIL;
        const char *name = s->p, *to = text_end(name, s->end, s->limit, &high);
        size_t length = (size_t)(to - name);
        if (to >= s->end || *to != '"') return FAIL;
        int index = member(c, name, length, hint);
        s->p = to + 1;
        if (index < 0) {
            if (!s->d->skips) {
                s->d->unknown = 1;
                return FAIL;
            }
            if (high && !kp_is_utf8((const uint8_t *)name, (const uint8_t *)to)) return FAIL;
            if (s->d->notes && c == &s->d->base.root) {
                if (!note(s, name, length, depth)) return FAIL;
                continue;
            }
            if (doubtful(c, name, length, high)) return FAIL;
            if (!add_name(&others, name, length) || !next_is(s, ':') || !any(s, NULL, depth)) return FAIL;
            s->d->inside |= c->width != ON_THE_WAY;
            continue;
        }
        column *child = &c->children[index];
        hint = index + 1;
        if (child->rows > row || !fill(&s->d->base, child, row)) return FAIL; /* duplicate */
        c->filled[c->fills++] = index;
        if (!next_is(s, ':') || !value(s, child, depth)) return FAIL;
    } while (next_is(s, ','));
    return next_is(s, '}');
}

/* Discard the members of an object that failed: each can have one row more than the object. */
static void discard(column *c) {
    for (int i = 0; i < c->fills; i++) cut(&c->children[c->filled[i]], c->rows);
}

static int null(scan *s, column *c) {
    if (!literal(s, "null", 4) || !fill(&s->d->base, c, c->rows + 1)) return FAIL;
    c->valid[c->rows - 1] = 0;
    return OK;
}

static int value(scan *s, column *c, int depth) {
    space(s);
    if (s->p >= s->end) return FAIL;
    if (*s->p == 'n') return null(s, c);
    switch (c->kind) {
    case TEXT: return c->width == TEXTS || (c->width == ANYTHING && *s->p == '"') ? text(s, c) : as_json(s, c, depth);
    case INTEGER: return integer(s, c);
    case DOUBLE: return real(s, c);
    case BOOLEAN: {
        int yes = literal(s, "true", 4);
        if ((!yes && !literal(s, "false", 5)) || !slot(&s->d->base, c)) return FAIL;
        c->values[c->rows] = (char)yes;
        c->valid[c->rows++] = 1;
        return OK;
    }
    case STRUCT:
        if (depth >= DEEPEST || !slot(&s->d->base, c)) return FAIL;
        if (!members(s, c, c->rows, depth + 1)) {
            discard(c);
            return FAIL;
        }
        c->valid[c->rows++] = 1;
        return OK;
    default: { /* LIST */
        column *item = c->children;
        int64_t before = item->rows;
        if (depth >= DEEPEST || !slot(&s->d->base, c) || !next_is(s, '[')) return FAIL;
        space(s);
        if (!next_is(s, ']')) {
            do {
                if (!value(s, item, depth + 1)) {
                    cut(item, before);
                    return FAIL;
                }
            } while (next_is(s, ','));
            if (!next_is(s, ']') || item->rows > INT32_MAX) {
                cut(item, before);
                return FAIL;
            }
        }
        c->ends[c->rows] = (int32_t)item->rows;
        c->valid[c->rows++] = 1;
        return OK;
    }
    }
}

/* ---- called from Python --------------------------------------------------------------------------------------- */

void kp_json_free(json *d) {
    if (!d) return;
    kp_release(&d->base);
    free_notes(&d->noted);
    if (d->c_locale) freelocale(d->c_locale);
    free(d);
}

json *kp_json_new(const int32_t *nodes, const uint64_t *ranges, const char *names) {
    json *d = calloc(1, sizeof(json));
    if (!d) return NULL;
    d->c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!d->c_locale || !kp_build(&d->base.root, &nodes, &ranges, &names) || !index_names(&d->base.root)) {
        kp_json_free(d);
        return NULL;
    }
    return d;
}

/* Ignore unknown members in later blocks, at every depth; note the payloads that have some inside a value. */
void kp_json_select(json *d) { d->skips = 1; }

/* Note the unknown members of the payload in later blocks, besides. */
void kp_json_note(json *d) { d->skips = d->notes = 1; }

/* Copy what the last block's members without a column are, in order of the payloads: start and length of each name in the data,
 * and payload and code of each member. `sizes` gets the numbers of names and members; no `names`: nothing is copied. */
void kp_json_notes(const json *d, const char *data, int64_t *sizes, int64_t *names, int64_t *members) {
    const new_members *n = &d->noted;
    sizes[0] = n->count;
    sizes[1] = n->noted;
    for (int64_t i = 0; names && i < n->count; i++) {
        names[2 * i] = n->names[i].start - data;
        names[2 * i + 1] = n->names[i].length;
    }
    if (names && n->noted) memcpy(members, n->members, (size_t)n->noted * sizeof(new_member));
}

/* Decode payloads; payload i is [bounds[i], bounds[i+1] - 1) of the data, and the byte after it is a newline.
 * Returns the number of rows; -1: out of memory, or too many slots. status: GOOD, LOOK or UNKNOWN for each payload. */
int64_t kp_json_decode(json *d, const char *data, const int64_t *bounds, int64_t count, uint8_t *status) {
    column *root = &d->base.root;
    clear(root);
    clear_notes(&d->noted);
    d->base.broken = 0;
    d->base.slots = 0;
    for (int64_t at = 0; at < count; at++) {
        scan s = {d, data + bounds[at], data + bounds[at + 1] - 1, data + bounds[count]};
        int64_t noted = d->noted.noted;
        d->unknown = d->inside = 0;
        d->payload = at;
        int good = members(&s, root, root->rows, 1) && (space(&s), s.p == s.end);
        if (good && (!d->inside || note_member(&d->noted, at, INSIDE, &d->base.broken))) {
            root->rows++;
            status[at] = GOOD;
            continue;
        }
        if (d->base.broken) return -1;
        d->noted.noted = noted;
        discard(root);
        status[at] = d->unknown ? UNKNOWN : LOOK;
    }
    return settle(&d->base, root, 0) ? root->rows : -1;
}
