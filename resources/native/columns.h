/* Columns that are being built, with a slot for each row; shared by the decoders in C.
 *
 * The struct of each decoder begins with `decoder`, so that kp_size and kp_copy (columns.c) can read its columns.
 */
#ifndef KPIPE_COLUMNS_H
#define KPIPE_COLUMNS_H
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { STRUCT = 0, LIST = 1, BOOLEAN = 2, INTEGER = 3, DOUBLE = 4, TEXT = 5 };
enum { GOOD = 0, LOOK = 1, UNKNOWN = 2 };
enum { FAIL = 0, OK = 1 };

typedef struct column {
    int kind;
    int width;       /* INTEGER: bytes of a value; TEXT and STRUCT of JSON: the enums in json.c */
    uint64_t most;   /* INTEGER: largest value */
    uint64_t least;  /* INTEGER: magnitude of the smallest value */
    char *name;
    size_t name_length;
    struct column *children;
    int count;
    int32_t *places; /* STRUCT of many children: a hash table of their indices by name, -1 where free (json.c); else NULL */
    uint64_t mask;   /* of a hash in that table */
    int32_t *filled; /* STRUCT: indices of the children that the current slot has filled (json.c) */
    int fills;
    /* the content: a slot for each row of the parent */
    int64_t rows, room;
    int some_null;
    uint8_t *valid;   /* a byte for each slot: 1 valid, 0 null, 2 null because the value is absent */
    int32_t *ends;    /* TEXT, LIST: end of each slot in `values` or in the child */
    char *values;     /* values of fixed width (BOOLEAN: a byte), or the bytes of texts */
    size_t used, size;
} column;

/* Limit on the slots that one block may fill, in all columns together: some 80 MB. An item of a list takes a slot for each
 * member of its struct, so `[{},{},...]` needs much memory for few bytes. */
#define MOST_SLOTS (1 << 23)

typedef struct {
    column root;
    column **nodes; /* all columns in depth-first order, the root first; made by the first kp_sizes */
    int node_count;
    int64_t slots; /* filled for this block so far, including discarded ones */
    int broken;    /* out of memory, or the block fills too many slots */
} decoder;

static inline int grow_rows(decoder *d, column *c, int64_t least) {
    int64_t room = c->room ? c->room * 2 : 1024;
    while (room < least) room *= 2;
    uint8_t *valid = realloc(c->valid, (size_t)room);
    if (valid) c->valid = valid;
    void *more = c->valid;
    if (c->kind == TEXT || c->kind == LIST) {
        more = realloc(c->ends, (size_t)room * sizeof(int32_t));
        if (more) c->ends = more;
    } else if (c->kind != STRUCT) {
        size_t width = c->kind == INTEGER ? (size_t)c->width : c->kind == DOUBLE ? 8 : 1;
        more = realloc(c->values, (size_t)room * width);
        if (more) c->values = more;
    }
    if (!valid || !more) {
        d->broken = 1;
        return FAIL;
    }
    c->room = room;
    return OK;
}

static inline int slot(decoder *d, column *c) {
    if (++d->slots > MOST_SLOTS) {
        d->broken = 1;
        return FAIL;
    }
    return c->rows < c->room ? OK : grow_rows(d, c, c->rows + 1);
}

static inline int64_t end_of(const column *c) { return c->rows ? c->ends[c->rows - 1] : 0; }

static inline int reserve(decoder *d, column *c, size_t more) {
    if (c->used + more <= c->size) return OK;
    size_t size = c->size ? c->size : 4096;
    while (size < c->used + more) size *= 2;
    char *values = size <= INT32_MAX ? realloc(c->values, size) : NULL;
    if (!values) {
        d->broken = 1;
        return FAIL;
    }
    c->values = values;
    c->size = size;
    return OK;
}

static inline int put_nothing(decoder *d, column *c, uint8_t mark) {
    if (!slot(d, c)) return FAIL;
    c->some_null = 1;
    c->valid[c->rows] = mark;
    switch (c->kind) {
    case STRUCT:
        for (int i = 0; i < c->count; i++)
            if (!put_nothing(d, &c->children[i], 2)) return FAIL;
        break;
    case LIST:
    case TEXT: c->ends[c->rows] = (int32_t)end_of(c); break;
    case INTEGER: memset(c->values + c->rows * c->width, 0, (size_t)c->width); break;
    case DOUBLE: memset(c->values + c->rows * 8, 0, 8); break;
    default: c->values[c->rows] = 0;
    }
    c->rows++;
    return OK;
}

/* Append absent values up to that number of rows at once. Children stay behind: they are filled before their next value, or by
 * `settle`. */
static inline int fill(decoder *d, column *c, int64_t rows) {
    int64_t more = rows - c->rows;
    if (more <= 0) return OK;
    if ((d->slots += more) > MOST_SLOTS) {
        d->broken = 1;
        return FAIL;
    }
    if (rows > c->room && !grow_rows(d, c, rows)) return FAIL;
    c->some_null = 1;
    memset(c->valid + c->rows, 2, (size_t)more);
    if (c->kind == TEXT || c->kind == LIST) {
        int32_t end = (int32_t)end_of(c);
        for (int64_t at = c->rows; at < rows; at++) c->ends[at] = end;
    } else if (c->kind != STRUCT) {
        size_t width = c->kind == INTEGER ? (size_t)c->width : c->kind == DOUBLE ? 8 : 1;
        memset(c->values + (size_t)c->rows * width, 0, (size_t)more * width);
    }
    c->rows = rows;
    return OK;
}

static inline int columns_in(const column *c) {
    int count = 1;
    for (int i = 0; i < c->count; i++) count += columns_in(&c->children[i]);
    return count;
}

/* Fill the columns that are behind, except those without any value, which stay empty: their rows are all absent. Inside of lists
 * these count as slots too, as few bytes can have very many items. */
static inline int settle(decoder *d, column *c, int in_list) {
    for (int i = 0; i < c->count; i++) {
        column *child = &c->children[i];
        if (child->rows) {
            if (c->kind == STRUCT && !fill(d, child, c->rows)) return FAIL;
            if (!settle(d, child, in_list || c->kind == LIST)) return FAIL;
        } else if (in_list && (d->slots += c->rows * columns_in(child)) > MOST_SLOTS) {
            d->broken = 1;
            return FAIL;
        }
    }
    return OK;
}

static inline int put_null(decoder *d, column *c) { return put_nothing(d, c, 0); }

static inline void cut(column *c, int64_t rows) {
    if (c->rows <= rows) return;
    c->rows = rows;
    if (c->kind == TEXT) c->used = (size_t)end_of(c);
    if (c->kind == LIST) cut(c->children, end_of(c));
    if (c->kind == STRUCT)
        for (int i = 0; i < c->count; i++) cut(&c->children[i], rows);
}

/* Discard the members of an object that failed: they can have one row more than the object. */
static inline void cut_members(column *c) {
    for (int i = 0; i < c->count; i++) cut(&c->children[i], c->rows);
}

/* Discard all rows. */
static inline void clear(column *c) {
    c->rows = 0;
    c->used = 0;
    c->some_null = 0;
    c->fills = 0;
    for (int i = 0; i < c->count; i++) clear(&c->children[i]);
}

int kp_is_utf8(const uint8_t *p, const uint8_t *end);
int kp_build(column *c, const int32_t **node, const uint64_t **range, const char **names);
void kp_release(decoder *d);
#endif
