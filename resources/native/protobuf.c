/* Decode Protobuf's wire format to columns: payloads of one message each, without an intermediate object.
 *
 * A payload that fails this fast path gets status LOOK; its row is discarded, and exact code in Python reports the reason, or
 * merges several occurrences of a message. So this file may reject valid payloads, but must never accept one that exact code
 * rejects or decodes differently.
 *
 * Wire format: protobuf.dev, "Encoding". Step codes and the order of fields: resources/decode/protobuf/message_plan.py.
 */
#include "columns.h"

#define DEEPEST 100 /* levels of skipped groups; the depth of columns is limited by the schema */

enum {
    FLAG, INT32, INT64, UINT32, UINT64, SINT32, SINT64, FOUR, EIGHT, STRING, BYTES, ENUM, MESSAGE, SPAN, MAP, TIMESTAMP, DURATION,
    WRAPPER
};
enum { VARINT = 0, BITS64 = 1, SIZED = 2, BEGIN = 3, END = 4, BITS32 = 5 };
enum { REPEATED = 1, REQUIRED = 2, FILLED = 4 };

typedef struct {
    int64_t number, op, wire, place, inner, flags, group; /* inner: index of node or enum; group: bit of its oneof, -1: none */
    int64_t fixed, text, length;                          /* value of an absent field, if FILLED */
} field;

typedef struct {
    int64_t count, bits; /* number of fields; bits of `seen`: one for each field and oneof */
    const field *fields;
} node;

typedef struct {
    int64_t number, begin, end;
} symbol;

typedef struct {
    int64_t count;
    const symbol *symbols; /* by number */
} names;

typedef struct {
    decoder base;
    int64_t *data; /* buffer of nodes and enums */
    node *nodes;
    names *enums;
    char *texts;
} protobuf;

typedef struct {
    protobuf *d;
    const uint8_t *p, *end;
} scan;

static inline int varint(scan *s, uint64_t *out) {
    if (s->p < s->end && *s->p < 0x80) {
        *out = *s->p++;
        return OK;
    }
    uint64_t value = 0;
    for (int shift = 0; shift < 70 && s->p < s->end; shift += 7) {
        uint8_t byte = *s->p++;
        if (shift == 63 && byte > 1) return FAIL;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *out = value;
            return OK;
        }
    }
    return FAIL;
}

static inline int tag(scan *s, int64_t *number, int *wire) {
    const uint8_t *from = s->p;
    uint64_t value;
    if (!varint(s, &value) || value > UINT32_MAX || s->p - from > 5) return FAIL;
    *number = (int64_t)(value >> 3);
    *wire = (int)(value & 7);
    return *number > 0;
}

/* Read a length and return the bytes after it. */
static inline int sized(scan *s, scan *part) {
    uint64_t size;
    if (!varint(s, &size) || size > (uint64_t)(s->end - s->p)) return FAIL;
    scan found = {s->d, s->p, s->p + size};
    *part = found;
    s->p += size;
    return OK;
}

static int skip(scan *s, int64_t number, int wire, int depth) {
    uint64_t value;
    scan part;
    switch (wire) {
    case VARINT: return varint(s, &value);
    case BITS64:
    case BITS32: {
        int size = wire == BITS64 ? 8 : 4;
        if (s->end - s->p < size) return FAIL;
        s->p += size;
        return OK;
    }
    case SIZED: return sized(s, &part);
    case BEGIN:
        if (depth >= DEEPEST) return FAIL;
        while (s->p < s->end) {
            int64_t inner;
            int kind;
            if (!tag(s, &inner, &kind)) return FAIL;
            if (kind == END) return inner == number;
            if (!skip(s, inner, kind, depth + 1)) return FAIL;
        }
        return FAIL;
    default: return FAIL;
    }
}

static inline int put(scan *s, column *c, const void *bytes, size_t width) {
    if (!slot(&s->d->base, c)) return FAIL;
    memcpy(c->values + (size_t)c->rows * width, bytes, width);
    c->valid[c->rows++] = 1;
    return OK;
}

static inline int append(scan *s, column *c, const void *bytes, size_t size) {
    if (!reserve(&s->d->base, c, size)) return FAIL;
    if (size) memcpy(c->values + c->used, bytes, size);
    c->used += size;
    return OK;
}

/* End a text whose bytes were appended: add a row. */
static inline int end_text(scan *s, column *c) {
    if (!slot(&s->d->base, c)) return FAIL;
    c->valid[c->rows] = 1;
    c->ends[c->rows++] = (int32_t)c->used;
    return OK;
}

static inline int put_text(scan *s, column *c, const void *bytes, size_t size) {
    return append(s, c, bytes, size) && end_text(s, c);
}

static int put_enum(scan *s, const names *e, uint64_t value, column *c) {
    int64_t number = (int64_t)value, low = 0, high = e->count;
    if (number < INT32_MIN || number > INT32_MAX) return FAIL;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (e->symbols[middle].number < number) low = middle + 1;
        else high = middle;
    }
    if (low < e->count && e->symbols[low].number == number) {
        const symbol *found = &e->symbols[low];
        return put_text(s, c, s->d->texts + found->begin, (size_t)(found->end - found->begin));
    }
    char digits[24], *to = digits + sizeof digits;
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do *--to = (char)('0' + rest % 10);
    while (rest /= 10);
    if (number < 0) *--to = '-';
    return put_text(s, c, to, (size_t)(digits + sizeof digits - to));
}

/* Read seconds = 1 (int64) and nanos = 2 (int32) of Timestamp and Duration. The last value of each counts. */
static int moment(scan *s, int64_t *seconds, int64_t *nanos) {
    *seconds = *nanos = 0;
    while (s->p < s->end) {
        int64_t number;
        int wire;
        uint64_t value;
        if (!tag(s, &number, &wire)) return FAIL;
        if (number > 2) {
            if (!skip(s, number, wire, 0)) return FAIL;
            continue;
        }
        if (wire != VARINT || !varint(s, &value)) return FAIL;
        *(number == 1 ? seconds : nanos) = (int64_t)value;
    }
    return *nanos > -1000000000 && *nanos < 1000000000;
}

static int message(scan *s, const node *n, column *c, int64_t group);
static int value(scan *s, const field *f, column *c);

static int wrapped(scan *s, const field *inner, column *c) {
    int there = 0;
    int64_t before = c->rows;
    while (s->p < s->end) {
        int64_t number;
        int wire, good;
        if (!tag(s, &number, &wire)) return FAIL;
        if (number != 1) good = skip(s, number, wire, 0);
        else if (there || wire != inner->wire) good = FAIL;
        else good = value(s, inner, c), there = 1;
        if (!good) {
            cut(c, before);
            return FAIL;
        }
    }
    if (there) return OK;
    return c->kind == TEXT ? put_text(s, c, "", 0) : put(s, c, &inner->fixed, c->kind == DOUBLE ? 8 : c->kind == BOOLEAN ? 1 : (size_t)c->width);
}

/* Read one value, after its tag. */
static int value(scan *s, const field *f, column *c) {
    uint64_t found;
    scan part;
    switch (f->op) {
    case FLAG: {
        if (!varint(s, &found) || found > 1) return FAIL;
        uint8_t flag = (uint8_t)found;
        return put(s, c, &flag, 1);
    }
    case INT32: {
        if (!varint(s, &found) || (int64_t)found < INT32_MIN || (int64_t)found > INT32_MAX) return FAIL;
        int32_t small = (int32_t)found;
        return put(s, c, &small, 4);
    }
    case UINT32: {
        if (!varint(s, &found) || found > UINT32_MAX) return FAIL;
        uint32_t small = (uint32_t)found;
        return put(s, c, &small, 4);
    }
    case SINT32: {
        if (!varint(s, &found) || found > UINT32_MAX) return FAIL;
        int32_t small = (int32_t)((uint32_t)(found >> 1) ^ (0 - (uint32_t)(found & 1)));
        return put(s, c, &small, 4);
    }
    case INT64:
    case UINT64: return varint(s, &found) && put(s, c, &found, 8);
    case SINT64:
        if (!varint(s, &found)) return FAIL;
        found = (found >> 1) ^ (0 - (found & 1));
        return put(s, c, &found, 8);
    case FOUR:
    case EIGHT: {
        int size = f->op == FOUR ? 4 : 8;
        if (s->end - s->p < size) return FAIL;
        s->p += size;
        return put(s, c, s->p - size, (size_t)size);
    }
    case STRING: return sized(s, &part) && kp_is_utf8(part.p, part.end) && put_text(s, c, part.p, (size_t)(part.end - part.p));
    case BYTES: return sized(s, &part) && put_text(s, c, part.p, (size_t)(part.end - part.p));
    case ENUM: return varint(s, &found) && put_enum(s, &s->d->enums[f->inner], found, c);
    case SPAN: {
        if (f->wire == SIZED) return sized(s, &part) && put_text(s, c, part.p, (size_t)(part.end - part.p));
        const uint8_t *from = s->p, *to = from; /* a group ends at its end tag */
        while (s->p < s->end) {
            int64_t number;
            int wire;
            to = s->p;
            if (!tag(s, &number, &wire)) return FAIL;
            if (wire == END) return number == f->number && put_text(s, c, from, (size_t)(to - from));
            if (!skip(s, number, wire, 0)) return FAIL;
        }
        return FAIL;
    }
    case MESSAGE: {
        if (!slot(&s->d->base, c)) return FAIL;
        const node *n = &s->d->nodes[f->inner];
        if (f->wire == BEGIN ? !message(s, n, c, f->number) : !sized(s, &part) || !message(&part, n, c, 0)) return FAIL;
        c->valid[c->rows++] = 1;
        return OK;
    }
    case TIMESTAMP: {
        int64_t seconds, nanos;
        if (!sized(s, &part) || !moment(&part, &seconds, &nanos)) return FAIL;
        if (seconds < -62135596800 || seconds > 253402300799 || nanos < 0) return FAIL;
        int64_t micros = seconds * 1000000 + nanos / 1000;
        return put(s, c, &micros, 8);
    }
    case DURATION: {
        int64_t seconds, nanos;
        if (!sized(s, &part) || !moment(&part, &seconds, &nanos)) return FAIL;
        if (seconds < -315576000000 || seconds > 315576000000 || (seconds > 0 && nanos < 0) || (seconds < 0 && nanos > 0)) return FAIL;
        __int128 whole = (__int128)seconds * 1000000000 + nanos;
        return put(s, c, &whole, 16);
    }
    case WRAPPER: return sized(s, &part) && wrapped(&part, &s->d->nodes[f->inner].fields[0], c);
    default: return FAIL;
    }
}

static inline const field *find(const node *n, int64_t number, int64_t *hint) {
    if (*hint < n->count && n->fields[*hint].number == number) return &n->fields[*hint];
    int64_t low = 0, high = n->count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (n->fields[middle].number < number) low = middle + 1;
        else high = middle;
    }
    if (low == n->count || n->fields[low].number != number) return NULL;
    *hint = low;
    return &n->fields[low];
}

/* Set a bit, and return whether it was already set. */
static inline int marked(uint64_t *seen, int64_t bit) {
    uint64_t mask = (uint64_t)1 << (bit & 63), *word = &seen[bit >> 6];
    int was = (*word & mask) != 0;
    *word |= mask;
    return was;
}

static int several(scan *s, const field *f, column *c, int wire) {
    scan part;
    if (f->op == MAP) {
        const uint8_t *from = s->p;
        return wire == SIZED && sized(s, &part) && append(s, c, from, (size_t)(s->p - from));
    }
    if (wire == f->wire) return value(s, f, c->children);
    if (wire != SIZED || f->wire == BEGIN || !sized(s, &part)) return FAIL; /* packed */
    while (part.p < part.end)
        if (!value(&part, f, c->children)) return FAIL;
    return OK;
}

static int fields(scan *s, const node *n, column *c, int64_t group, uint64_t *seen) {
    int64_t number, hint = 0;
    int wire;
    while (s->p < s->end) {
        if (!tag(s, &number, &wire)) return FAIL;
        if (wire == END) return group && number == group;
        const field *f = find(n, number, &hint);
        if (!f) {
            if (!skip(s, number, wire, 0)) return FAIL;
            continue;
        }
        column *m = &c->children[f->place];
        if (f->flags & REPEATED) {
            if (!several(s, f, m, wire)) return FAIL;
            continue;
        }
        if (wire != f->wire || marked(seen, f - n->fields) || (f->group >= 0 && marked(seen, f->group)) || !value(s, f, m)) return FAIL;
        hint++;
    }
    return !group;
}

static int absent(scan *s, const field *f, column *m) {
    if (f->flags & REQUIRED) return FAIL;
    if (!(f->flags & FILLED)) return put_null(&s->d->base, m);
    if (m->kind == TEXT) return put_text(s, m, s->d->texts + f->text, (size_t)f->length);
    return put(s, m, &f->fixed, m->kind == DOUBLE ? 8 : m->kind == BOOLEAN ? 1 : (size_t)m->width);
}

/* Read a message into the children, which then have one row more than the column itself; on FAIL their new rows are discarded. */
static int message(scan *s, const node *n, column *c, int64_t group) {
    uint64_t seen[n->bits / 64 + 1];
    memset(seen, 0, sizeof seen);
    int good = fields(s, n, c, group, seen);
    for (int64_t i = 0; good && i < n->count; i++) {
        const field *f = &n->fields[i];
        column *m = &c->children[f->place];
        if (!(f->flags & REPEATED)) {
            if (!(seen[i >> 6] >> (i & 63) & 1)) good = absent(s, f, m);
        } else if (f->op == MAP) {
            good = end_text(s, m);
        } else if ((good = m->children->rows <= INT32_MAX && slot(&s->d->base, m))) {
            m->ends[m->rows] = (int32_t)m->children->rows;
            m->valid[m->rows++] = 1;
        }
    }
    for (int64_t i = 0; !good && i < n->count; i++) {
        column *m = &c->children[n->fields[i].place];
        cut(m, c->rows);
        if (m->kind == LIST) cut(m->children, end_of(m));
        if (m->kind == TEXT) m->used = (size_t)end_of(m);
    }
    return good;
}

/* ---- called from Python --------------------------------------------------------------------------------------- */

void kp_protobuf_free(protobuf *d) {
    if (!d) return;
    kp_release(&d->base);
    free(d->data);
    free(d->nodes);
    free(d->enums);
    free(d->texts);
    free(d);
}

/* Data of each node: number of fields, number of bits, fields; then of each enum: number of symbols, symbols. */
protobuf *kp_protobuf_new(const int64_t *data, int64_t size, int64_t nodes, int64_t enums, const char *texts, int64_t texts_size,
                          const int32_t *columns, const uint64_t *ranges, const char *labels) {
    protobuf *d = calloc(1, sizeof(protobuf));
    if (!d) return NULL;
    d->data = malloc((size_t)size * sizeof(int64_t) + 1);
    d->nodes = calloc((size_t)nodes + 1, sizeof(node));
    d->enums = calloc((size_t)enums + 1, sizeof(names));
    d->texts = malloc((size_t)texts_size + 1);
    if (!d->data || !d->nodes || !d->enums || !d->texts || !kp_build(&d->base.root, &columns, &ranges, &labels)) {
        kp_protobuf_free(d);
        return NULL;
    }
    memcpy(d->data, data, (size_t)size * sizeof(int64_t));
    memcpy(d->texts, texts, (size_t)texts_size);
    const int64_t *at = d->data;
    for (int64_t i = 0; i < nodes; i++) {
        node made = {at[0], at[1], (const field *)(at + 2)};
        d->nodes[i] = made;
        at += 2 + at[0] * (int64_t)(sizeof(field) / sizeof(int64_t));
    }
    for (int64_t i = 0; i < enums; i++) {
        names made = {at[0], (const symbol *)(at + 1)};
        d->enums[i] = made;
        at += 1 + at[0] * 3;
    }
    return d;
}

/* Decode the chosen payloads; payload i is [bounds[i] + skipped, bounds[i+1] - 1) of the data. Returns the number of rows; -1:
 * out of memory, or too many slots. status: GOOD or LOOK for each chosen payload. */
int64_t kp_protobuf_decode(protobuf *d, const uint8_t *data, const int64_t *bounds, const int64_t *chosen, int64_t count,
                           int64_t skipped, uint8_t *status) {
    column *root = &d->base.root;
    for (int i = 0; i < root->count; i++) cut(&root->children[i], 0);
    root->rows = 0;
    d->base.broken = 0;
    d->base.slots = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = chosen[i];
        scan s = {d, data + bounds[at] + skipped, data + bounds[at + 1] - 1};
        if (s.p <= s.end && message(&s, &d->nodes[0], root, 0)) {
            root->rows++;
            status[i] = GOOD;
            continue;
        }
        if (d->base.broken) return -1;
        status[i] = LOOK;
    }
    return root->rows;
}
