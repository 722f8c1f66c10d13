/* Convert rows of Arrow columns to PostgreSQL's binary COPY format: big-endian integers, each field after its length, -1: NULL.
   https://www.postgresql.org/docs/current/sql-copy.html, "Binary Format"; numeric: numeric_recv in the server's numeric.c. */
#include <stdint.h>
#include <string.h>

enum { FIXED, BOOLEAN, BYTES, PREFIXED, NUMERIC }; /* the same numbers as in resources/destinations/postgres/binary_copy.py */

typedef struct {
    int64_t code;
    int64_t width;         /* FIXED: bytes of a value, 2, 4 or 8 */
    int64_t add;           /* FIXED: from Arrow's epoch to PostgreSQL's; if it is not 0, the largest values mean infinity */
    int64_t first;         /* index of the first bit of validity and of booleans */
    const uint8_t *valid;  /* validity bitmap; NULL: all rows are valid */
    const uint8_t *values; /* from the first row on; for texts: all of them */
    const int64_t *ends;   /* BYTES, PREFIXED, NUMERIC: begin of the first text, then the end of each */
} column;

static uint8_t *put(uint8_t *to, uint64_t value, int width) {
    for (int at = width - 1; at >= 0; at--, value >>= 8) to[at] = (uint8_t)value;
    return to + width;
}

static int has(const uint8_t *bits, int64_t at) { return bits[at >> 3] >> (at & 7) & 1; }

static int64_t moved(int64_t value, int64_t add, int64_t most) {
    if (!add) return value;
    if (value == most) return most;             /* infinity: equal in both */
    if (value <= -most) return -most - 1;       /* -infinity: differs */
    return value < -most - add ? -most : value + add; /* below the range: -most, which the server rejects too */
}

static uint8_t *fixed(uint8_t *to, const column *c, int64_t row) {
    const uint8_t *p = c->values + row * c->width;
    int16_t two;
    int32_t four;
    int64_t eight;
    switch (c->width) {
    case 2: memcpy(&two, p, 2); return put(to, (uint64_t)(int64_t)two, 2);
    case 4: memcpy(&four, p, 4); return put(to, (uint64_t)moved(four, c->add, INT32_MAX), 4);
    default: memcpy(&eight, p, 8); return put(to, (uint64_t)moved(eight, c->add, INT64_MAX), 8);
    }
}

/* Convert a text such as `-123.4500` to numeric: groups of four digits from the point in both directions; number of groups,
   weight of the first group, sign, digits after the point. */
static uint8_t *numeric(uint8_t *to, const uint8_t *text, int64_t length) {
    int negative = length && *text == '-';
    const uint8_t *p = text + negative, *end = text + length, *point = memchr(p, '.', (size_t)(end - p));
    int64_t whole = (point ? point : end) - p, scale = point ? end - point - 1 : 0;
    int64_t before = (whole + 3) / 4, groups = before + (scale + 3) / 4, first = 0, last;
    uint16_t found[64] = {0};
    if (groups > 64) return 0; /* 40 digits need at most twelve groups */
    for (const uint8_t *one = p; one < end; one++)
        if ((*one < '0' || *one > '9') && one != point) return 0;
    for (int64_t at = 0; at < whole; at++) {
        uint16_t *group = found + before - 1 - (whole - 1 - at) / 4;
        *group = (uint16_t)(*group * 10 + p[at] - '0');
    }
    for (int64_t at = 0; at < (groups - before) * 4; at++) {
        uint16_t *group = found + before + at / 4;
        *group = (uint16_t)(*group * 10 + (at < scale ? point[1 + at] - '0' : 0));
    }
    for (last = groups; last > 0 && !found[last - 1];) last--;
    while (first < last && !found[first]) first++;
    uint8_t *size = to;
    to = put(to + 4, (uint64_t)(last - first), 2);
    to = put(to, (uint64_t)(last > first ? before - first - 1 : 0), 2);
    to = put(to, last > first && negative ? 0x4000 : 0, 2);
    to = put(to, (uint64_t)scale, 2);
    for (int64_t at = first; at < last; at++) to = put(to, found[at], 2);
    put(size, (uint64_t)(to - size - 4), 4);
    return to;
}

/* Return the largest number of bytes that the rows can need. */
int64_t kp_pgcopy_room(const column *columns, int64_t count, int64_t rows) {
    int64_t room = 2 * rows;
    for (const column *c = columns; c < columns + count; c++) {
        room += rows * 4;
        if (c->code == FIXED) room += rows * c->width;
        else if (c->code == BOOLEAN) room += rows;
        else if (c->code == NUMERIC) room += rows * 12 + (c->ends[rows] - c->ends[0]);
        else room += rows + (c->ends[rows] - c->ends[0]);
    }
    return room;
}

/* Write the rows and return the number of bytes; -1: a text exceeds the limit of a field, or a number has other characters. */
int64_t kp_pgcopy(const column *columns, int64_t count, int64_t rows, uint8_t *to) {
    const uint8_t *began = to;
    for (int64_t row = 0; row < rows; row++) {
        to = put(to, (uint64_t)count, 2);
        for (const column *c = columns; c < columns + count; c++) {
            if (c->valid && !has(c->valid, c->first + row)) {
                to = put(to, UINT32_MAX, 4);
            } else if (c->code == FIXED) {
                to = fixed(put(to, (uint64_t)c->width, 4), c, row);
            } else if (c->code == BOOLEAN) {
                to = put(put(to, 1, 4), (uint64_t)has(c->values, c->first + row), 1);
            } else {
                const uint8_t *text = c->values + c->ends[row];
                int64_t length = c->ends[row + 1] - c->ends[row], prefix = c->code == PREFIXED;
                if (length > INT32_MAX - 1) return -1;
                if (c->code == NUMERIC) {
                    if (!(to = numeric(to, text, length))) return -1;
                    continue;
                }
                to = put(to, (uint64_t)(length + prefix), 4);
                if (prefix) *to++ = 1; /* the version of jsonb's format */
                memcpy(to, text, (size_t)length);
                to += length;
            }
        }
    }
    return to - began;
}
