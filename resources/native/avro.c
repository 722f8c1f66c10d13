/* Decode Avro's binary encoding to columns: payloads of one datum each, without an intermediate object.
 *
 * A payload that fails this fast path (too short, with bytes left over, a number out of range, text that is not UTF-8) gets
 * status LOOK; its row is discarded, and exact code in Python reports the reason. So this file may reject valid payloads, but
 * must never accept one that exact code rejects or decodes differently: tests/resources/decode compares the two.
 *
 * Encoding: Apache Avro 1.12, "Binary encoding". Node codes and their order: resources/decode/avro/nodes.py.
 */
#include "columns.h"

#define DEEPEST 200

enum {
    NOTHING, FLAG, INT, LONG, FLOAT, REAL, BYTES, STRING, FIXED, ENUM, RECORD, ARRAY, MAP, OPTIONAL, UNION, SPAN, SCALED,
    DECIMAL, UUID
};

typedef struct {
    int64_t op, a, b, count;
    const int64_t *more; /* RECORD: node and column (-1: none) of each field; ENUM: begin of each symbol, end; else nodes */
} node;

typedef struct {
    decoder base;
    int64_t *data; /* buffer of the nodes' numbers */
    node *nodes;
    char *symbols;
} avro;

typedef struct {
    avro *d;
    const uint8_t *p, *end;
} scan;

/* Read a zigzag number of 64 bits: at most ten bytes, and one bit of the tenth. */
static inline int number(scan *s, int64_t *out) {
    uint64_t value = 0;
    for (int shift = 0; shift < 70 && s->p < s->end; shift += 7) {
        uint8_t byte = *s->p++;
        if (shift == 63 && byte > 1) return FAIL;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *out = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
            return OK;
        }
    }
    return FAIL;
}

/* Return whether a number is inside a time type's range: 1 time of day, 2 instant (both in microseconds), 3 day; 0 any. */
static inline int within(int64_t value, int64_t what) {
    static const int64_t least[] = {INT64_MIN, 0, -62135596800000000, -719162};
    static const int64_t most[] = {INT64_MAX, 86399999999, 253402300799999999, 2932896};
    return value >= least[what] && value <= most[what];
}

static inline int length(scan *s, int64_t *out) { return number(s, out) && *out >= 0 && *out <= s->end - s->p; }

static inline int put(scan *s, column *c, const void *bytes, size_t width) {
    if (!c) return OK;
    if (!slot(&s->d->base, c)) return FAIL;
    memcpy(c->values + (size_t)c->rows * width, bytes, width);
    c->valid[c->rows++] = 1;
    return OK;
}

static inline int put_text(scan *s, column *c, const void *bytes, size_t size) {
    if (!c) return OK;
    if (!slot(&s->d->base, c) || !reserve(&s->d->base, c, size)) return FAIL;
    if (size) memcpy(c->values + c->used, bytes, size);
    c->used += size;
    c->valid[c->rows] = 1;
    c->ends[c->rows++] = (int32_t)c->used;
    return OK;
}

static int decimal(scan *s, const node *n, column *c) {
    int64_t size = n->a;
    if (size < 0 ? !length(s, &size) : size > s->end - s->p) return FAIL;
    if (!size) return FAIL;
    const uint8_t *p = s->p, *end = p + size;
    s->p = end;
    if (!c) return OK;
    uint8_t sign = *p & 0x80 ? 0xff : 0;
    for (; end - p > 16; p++) /* leading bytes must repeat the sign, and so must the next bit */
        if (*p != sign || (p[1] & 0x80) != (sign & 0x80)) return FAIL;
    unsigned __int128 value = sign ? ~(unsigned __int128)0 : 0, most = 1;
    for (; p < end; p++) value = value << 8 | *p;
    for (int64_t i = 0; i < n->b; i++) most *= 10;
    unsigned __int128 size_of = sign ? (unsigned __int128)0 - value : value;
    return size_of < most && put(s, c, &value, 16);
}

static int uuid(scan *s, column *c) {
    static const char digits[] = "0123456789abcdef";
    char text[36], *to = text;
    if (s->end - s->p < 16) return FAIL;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) *to++ = '-';
        *to++ = digits[s->p[i] >> 4];
        *to++ = digits[s->p[i] & 15];
    }
    s->p += 16;
    return put_text(s, c, text, 36);
}

static int value(scan *s, int64_t index, column *c, int depth);

static int record(scan *s, const node *n, column *c, int depth) {
    for (int64_t i = 0; i < n->count; i++) {
        int64_t place = n->more[2 * i + 1];
        if (!value(s, n->more[2 * i], c && place >= 0 ? &c->children[place] : NULL, depth)) return FAIL;
    }
    return OK;
}

/* Read blocks of items up to an empty block; every item has at least one byte (checked on the schema). */
static int items(scan *s, const node *n, column *item, int depth) {
    for (;;) {
        int64_t count, size;
        if (!number(s, &count)) return FAIL;
        if (count == 0) return OK;
        if (count < 0) {
            if (count == INT64_MIN || !length(s, &size)) return FAIL;
            count = -count;
        }
        if (count > s->end - s->p) return FAIL;
        while (count--) {
            if (n->op == MAP && !value(s, n->more[1], NULL, depth)) return FAIL; /* the key */
            if (!value(s, n->more[0], item, depth)) return FAIL;
        }
    }
}

static int value(scan *s, int64_t index, column *c, int depth) {
    const node *n = &s->d->nodes[index];
    const uint8_t *from = s->p;
    int64_t found;
    switch (n->op) {
    case NOTHING: return OK;
    case FLAG: {
        if (s->p >= s->end || *s->p > 1) return FAIL;
        return put(s, c, s->p++, 1);
    }
    case INT: {
        if (!number(s, &found) || found < INT32_MIN || found > INT32_MAX || !within(found, n->b)) return FAIL;
        int32_t small = (int32_t)found;
        return put(s, c, &small, 4);
    }
    case LONG: return number(s, &found) && within(found, n->b) && put(s, c, &found, 8);
    case SCALED: {
        if (!number(s, &found) || (n->a && (found < INT32_MIN || found > INT32_MAX))) return FAIL;
        if (found > INT64_MAX / 1000 || found < INT64_MIN / 1000) return FAIL;
        found *= 1000;
        if (!within(found, n->b)) return FAIL;
        return put(s, c, &found, 8);
    }
    case FLOAT:
    case REAL: {
        int64_t width = n->op == FLOAT ? 4 : 8;
        if (s->end - s->p < width) return FAIL;
        s->p += width;
        return put(s, c, from, (size_t)width);
    }
    case BYTES:
    case STRING: {
        if (!length(s, &found)) return FAIL;
        from = s->p;
        s->p += found;
        return (n->op == BYTES || kp_is_utf8(from, s->p)) && put_text(s, c, from, (size_t)found);
    }
    case FIXED:
        if (s->end - s->p < n->a) return FAIL;
        s->p += n->a;
        return put_text(s, c, from, (size_t)n->a);
    case ENUM:
        if (!number(s, &found) || found < 0 || found >= n->count - 1) return FAIL;
        return put_text(s, c, s->d->symbols + n->more[found], (size_t)(n->more[found + 1] - n->more[found]));
    case DECIMAL: return decimal(s, n, c);
    case UUID: return uuid(s, c);
    case OPTIONAL:
        if (!number(s, &found) || (found != 0 && found != 1)) return FAIL;
        if (found == n->a) return c ? put_null(&s->d->base, c) : OK;
        return value(s, n->more[0], c, depth);
    case UNION:
        return depth < DEEPEST && number(s, &found) && found >= 0 && found < n->count && value(s, n->more[found], NULL, depth + 1);
    case SPAN:
        if (depth >= DEEPEST || !value(s, n->more[0], NULL, depth + 1)) return FAIL;
        return put_text(s, c, from, (size_t)(s->p - from));
    case RECORD: {
        if (depth >= DEEPEST || (c && !slot(&s->d->base, c))) return FAIL;
        if (!record(s, n, c, depth + 1)) {
            if (c) cut_members(c);
            return FAIL;
        }
        if (c) c->valid[c->rows++] = 1;
        return OK;
    }
    case ARRAY:
    case MAP: {
        column *item = c ? c->children : NULL;
        int64_t before = item ? item->rows : 0;
        if (depth >= DEEPEST || (c && !slot(&s->d->base, c))) return FAIL;
        if (!items(s, n, item, depth + 1) || (item && item->rows > INT32_MAX)) {
            if (item) cut(item, before);
            return FAIL;
        }
        if (c) {
            c->ends[c->rows] = (int32_t)item->rows;
            c->valid[c->rows++] = 1;
        }
        return OK;
    }
    default: return FAIL;
    }
}

/* ---- called from Python --------------------------------------------------------------------------------------- */

void kp_avro_free(avro *d) {
    if (!d) return;
    kp_release(&d->base);
    free(d->data);
    free(d->nodes);
    free(d->symbols);
    free(d);
}

/* Data of each node: op, a, b, count, number of further numbers, further numbers. */
avro *kp_avro_new(const int64_t *data, int64_t size, int64_t nodes, const char *symbols, int64_t symbols_size,
                  const int32_t *columns, const uint64_t *ranges, const char *names) {
    avro *d = calloc(1, sizeof(avro));
    if (!d) return NULL;
    d->data = malloc((size_t)size * sizeof(int64_t));
    d->nodes = calloc((size_t)nodes, sizeof(node));
    d->symbols = malloc((size_t)symbols_size + 1);
    if (!d->data || !d->nodes || !d->symbols || !kp_build(&d->base.root, &columns, &ranges, &names)) {
        kp_avro_free(d);
        return NULL;
    }
    memcpy(d->data, data, (size_t)size * sizeof(int64_t));
    memcpy(d->symbols, symbols, (size_t)symbols_size);
    const int64_t *at = d->data;
    for (int64_t i = 0; i < nodes; i++) {
        node made = {at[0], at[1], at[2], at[3], at + 5};
        d->nodes[i] = made;
        at += 5 + at[4];
    }
    return d;
}

/* Decode the chosen payloads; payload i is [bounds[i] + skip, bounds[i+1] - 1) of the data. Returns the number of rows; -1: out
 * of memory, or too many slots. status: GOOD or LOOK for each chosen payload. */
int64_t kp_avro_decode(avro *d, const uint8_t *data, const int64_t *bounds, const int64_t *chosen, int64_t count, int64_t skip,
                       uint8_t *status) {
    column *root = &d->base.root;
    for (int i = 0; i < root->count; i++) cut(&root->children[i], 0);
    root->rows = 0;
    d->base.broken = 0;
    d->base.slots = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = chosen[i];
        scan s = {d, data + bounds[at] + skip, data + bounds[at + 1] - 1};
        if (s.p <= s.end && record(&s, &d->nodes[0], root, 0) && s.p == s.end) {
            root->rows++;
            status[i] = GOOD;
            continue;
        }
        if (d->base.broken) return -1;
        cut_members(root);
        status[i] = LOOK;
    }
    return root->rows;
}
