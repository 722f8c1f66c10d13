/* Split CSV payloads to columns of text, by the rules of MySQL's LOAD DATA (resources/decode/csv/rows.py lists them).
 *
 * A payload with a line of more or fewer fields, or with a quote that is not closed, gets status LOOK, and all of its rows are
 * discarded: exact code in Python reports the reason. All other results must equal that code's: tests/resources/decode
 * compares the two.
 */
#include "columns.h"

typedef struct {
    decoder base;
    int quote, escape; /* a byte, or -1 */
    const char *delimiter, *line_end, *line_start, *null;
    int64_t delimiter_length, line_end_length, line_start_length, null_length; /* null_length -1: no text for NULL */
    int null_quoted;
    int64_t skip;
    int wanted;   /* number of fields of a line */
    int *places;  /* column of each field, or -1 */
    char *texts;  /* buffer of the texts above */
    uint8_t special[256];
} csv;

typedef struct {
    const csv *d;
    const char *p, *end;
} scan;

static inline int starts(const char *p, const char *end, const char *what, int64_t length) {
    return end - p >= length && *p == *what && memcmp(p, what, (size_t)length) == 0;
}

static inline int at_line_end(const scan *s, const char *p) { return starts(p, s->end, s->d->line_end, s->d->line_end_length); }

static inline int at_delimiter(const scan *s, const char *p) { return starts(p, s->end, s->d->delimiter, s->d->delimiter_length); }

static char meant(char sign) {
    static const char from[] = "ntrb0Z", to[] = "\n\t\r\b\0\x1a";
    const char *found = sign ? strchr(from, sign) : NULL;
    return found ? to[found - from] : sign;
}

static int is_null(const csv *d, const char *text, size_t length, int quoted, int escaped, int marked) {
    if (marked && length == 1 && *text == 'N') return 1;
    if (escaped) return 0;
    if (d->null_length < 0) return d->quote >= 0 && !quoted && length == 4 && memcmp(text, "NULL", 4) == 0;
    return (d->null_quoted || !quoted) && length == (size_t)d->null_length && memcmp(text, d->null, length) == 0;
}

/* Read one field into a column (NULL: discard it); `more`: another field follows in the line. */
static int field(csv *d, scan *s, column *c, int *more) {
    int quoted = 0, escaped = 0, marked = 0, ended = 0;
    const char *p = s->p;
    if (c && (!slot(&d->base, c) || !reserve(&d->base, c, (size_t)(s->end - p) + 1))) return FAIL;
    char *begin = c ? c->values + c->used : NULL, *to = begin;
    *more = 0;
    if (d->quote >= 0 && p < s->end && (unsigned char)*p == d->quote) {
        quoted = 1;
        p++;
    }
    while (p < s->end) {
        const char *from = p;
        while (p < s->end && !d->special[(unsigned char)*p]) p++;
        if (c) {
            memcpy(to, from, (size_t)(p - from));
            to += p - from;
        }
        if (p >= s->end) break;
        int sign = (unsigned char)*p;
        char put = *p;
        if (sign == d->escape && (d->escape != d->quote || (p + 1 < s->end && (unsigned char)p[1] == sign))) {
            if (p + 1 < s->end) { /* an escape at the end of a record is a plain character */
                p++;
                escaped = 1;
                if (d->escape != d->quote) {
                    marked |= *p == 'N';
                    put = meant(*p);
                }
            }
            p++;
        } else if (quoted && sign == d->quote) {
            p++;
            if (p < s->end && (unsigned char)*p == d->quote) {
                p++;
            } else if (p == s->end || at_line_end(s, p)) {
                if (p < s->end) p += d->line_end_length;
                ended = 1;
                break;
            } else if (at_delimiter(s, p)) {
                p += d->delimiter_length;
                *more = ended = 1;
                break;
            }
        } else if (!quoted && at_line_end(s, p)) {
            p += d->line_end_length;
            ended = 1;
            break;
        } else if (!quoted && at_delimiter(s, p)) {
            p += d->delimiter_length;
            *more = ended = 1;
            break;
        } else {
            p++;
        }
        if (c) *to++ = put;
    }
    s->p = p;
    if (quoted && !ended) return FAIL;
    if (!c) return OK;
    size_t length = (size_t)(to - begin);
    if (is_null(d, begin, length, quoted, escaped, marked)) return put_null(&d->base, c);
    c->used += length;
    c->valid[c->rows] = 1;
    c->ends[c->rows++] = (int32_t)c->used;
    return OK;
}

static const char *after_line(const scan *s, const char *p) {
    while (p < s->end) {
        if ((unsigned char)*p == s->d->escape) p += 2;
        else if (at_line_end(s, p)) return p + s->d->line_end_length;
        else p++;
    }
    return s->end;
}

static int payload(csv *d, scan *s) {
    column *root = &d->base.root;
    for (int64_t i = 0; i < d->skip; i++) s->p = after_line(s, s->p);
    while (s->p < s->end) {
        if (d->line_start_length) {
            while (s->p < s->end && !starts(s->p, s->end, d->line_start, d->line_start_length)) s->p++;
            if (s->p >= s->end) return OK;
            s->p += d->line_start_length;
        }
        int more = 1, at = 0;
        for (; more && at < d->wanted; at++)
            if (!field(d, s, d->places[at] < 0 ? NULL : &root->children[d->places[at]], &more)) return FAIL;
        if (more || at < d->wanted) return FAIL;
        root->rows++;
    }
    return OK;
}

void kp_csv_free(csv *d) {
    if (!d) return;
    kp_release(&d->base);
    free(d->places);
    free(d->texts);
    free(d);
}

/* signs: quote and escape, or -1. lengths: of delimiter, line end, line start and null (-1: none), whose bytes are
 * concatenated in `texts`; then null_quoted, lines to skip, fields, columns. places: column of each field, or -1. */
csv *kp_csv_new(const int64_t *signs, const int64_t *lengths, const char *texts, const int32_t *places) {
    csv *d = calloc(1, sizeof(csv));
    if (!d) return NULL;
    size_t null = lengths[3] < 0 ? 0 : (size_t)lengths[3], all = (size_t)(lengths[0] + lengths[1] + lengths[2]) + null;
    d->texts = malloc(all + 1);
    d->wanted = (int)lengths[6];
    d->places = malloc(((size_t)d->wanted + 1) * sizeof(int));
    d->base.root.kind = STRUCT;
    d->base.root.children = calloc((size_t)lengths[7] + 1, sizeof(column));
    if (!d->texts || !d->places || !d->base.root.children) {
        kp_csv_free(d);
        return NULL;
    }
    for (int i = 0; i < lengths[7]; i++) d->base.root.children[i].kind = TEXT;
    d->base.root.count = (int)lengths[7];
    memcpy(d->texts, texts, all);
    for (int i = 0; i < d->wanted; i++) d->places[i] = places[i];
    d->quote = (int)signs[0];
    d->escape = (int)signs[1];
    d->delimiter_length = lengths[0];
    d->line_end_length = lengths[1];
    d->line_start_length = lengths[2];
    d->null_length = lengths[3];
    d->null_quoted = (int)lengths[4];
    d->skip = lengths[5];
    d->delimiter = d->texts;
    d->line_end = d->delimiter + lengths[0];
    d->line_start = d->line_end + lengths[1];
    d->null = d->line_start + lengths[2];
    d->special[(unsigned char)*d->delimiter] = d->special[(unsigned char)*d->line_end] = 1;
    if (d->quote >= 0) d->special[d->quote] = 1;
    if (d->escape >= 0) d->special[d->escape] = 1;
    return d;
}

/* Like kp_json_decode; `rows`: number of rows of each payload. */
int64_t kp_csv_decode(csv *d, const char *data, const int64_t *bounds, int64_t count, uint8_t *status, int64_t *rows) {
    column *root = &d->base.root;
    for (int i = 0; i < root->count; i++) cut(&root->children[i], 0);
    root->rows = 0;
    d->base.broken = 0;
    d->base.slots = 0;
    for (int64_t at = 0; at < count; at++) {
        scan s = {d, data + bounds[at], data + bounds[at + 1] - 1};
        int64_t before = root->rows;
        status[at] = GOOD;
        if (!payload(d, &s)) {
            if (d->base.broken) return -1;
            root->rows = before;
            cut_members(root);
            status[at] = LOOK;
        }
        rows[at] = root->rows - before;
    }
    return root->rows;
}
