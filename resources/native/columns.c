/* Copy finished columns to Arrow's buffers. */
#include "columns.h"

/* Check UTF-8 by RFC 3629: no overlong form, no surrogate, no code point above U+10FFFF. */
int kp_is_utf8(const uint8_t *p, const uint8_t *end) {
    while (p < end) {
        uint64_t eight;
        while (end - p >= 8 && (memcpy(&eight, p, 8), !(eight & 0x8080808080808080u))) p += 8;
        if (p == end) break;
        unsigned c = *p++;
        if (c < 0x80) continue;
        int more = c >= 0xc2 && c <= 0xdf ? 1 : c >= 0xe0 && c <= 0xef ? 2 : c >= 0xf0 && c <= 0xf4 ? 3 : 0;
        if (!more || end - p < more) return 0;
        if ((c == 0xe0 && p[0] < 0xa0) || (c == 0xed && p[0] > 0x9f) || (c == 0xf0 && p[0] < 0x90) || (c == 0xf4 && p[0] > 0x8f))
            return 0;
        while (more--)
            if ((*p++ & 0xc0) != 0x80) return 0;
    }
    return 1;
}

/* Build a column from nodes in depth-first order, each: kind, width, number of children, length of its name. `names` has all
 * names concatenated. */
int kp_build(column *c, const int32_t **node, const uint64_t **range, const char **names) {
    c->kind = (*node)[0];
    c->width = (*node)[1];
    int count = (*node)[2];
    c->name_length = (size_t)(*node)[3];
    c->most = (*range)[0];
    c->least = (*range)[1];
    *node += 4;
    *range += 2;
    if (!(c->name = malloc(c->name_length + 1))) return FAIL;
    memcpy(c->name, *names, c->name_length);
    *names += c->name_length;
    if (count && !(c->children = calloc((size_t)count, sizeof(column)))) return FAIL;
    for (c->count = 0; c->count < count;)
        if (!kp_build(&c->children[c->count++], node, range, names)) return FAIL;
    return OK;
}

static void release(column *c) {
    for (int i = 0; i < c->count; i++) release(&c->children[i]);
    free(c->children);
    free(c->places);
    free(c->filled);
    free(c->name);
    free(c->valid);
    free(c->ends);
    free(c->values);
}

void kp_release(decoder *d) {
    release(&d->root);
    free(d->nodes);
}

static column **listed(column *c, column **to) {
    *to++ = c;
    for (int i = 0; i < c->count; i++) to = listed(&c->children[i], to);
    return to;
}

static int number_nodes(decoder *d) {
    if (d->nodes) return OK;
    int count = columns_in(&d->root);
    if (!(d->nodes = malloc((size_t)count * sizeof(column *)))) return FAIL;
    listed(&d->root, d->nodes);
    d->node_count = count;
    return OK;
}

/* Return the number of nodes; -1: out of memory. For each in depth-first order (0 is the root), `out` gets: rows, bytes of its
 * values, whether a slot may be null. No `out`: count only. */
int64_t kp_sizes(decoder *d, int64_t *out) {
    if (!number_nodes(d)) return -1;
    for (int i = 0; out && i < d->node_count; i++) {
        column *c = d->nodes[i];
        *out++ = c->rows;
        *out++ = (int64_t)c->used;
        *out++ = c->some_null;
        c->some_null = 0;
    }
    return d->node_count;
}

static void bits(const uint8_t *bytes, int64_t count, uint8_t *to) {
    int64_t i = 0;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (; i + 8 <= count; i += 8) { /* the product moves bit 0 of byte k to bit 56 + k */
        uint64_t eight;
        memcpy(&eight, bytes + i, 8);
        to[i / 8] = (uint8_t)((eight & 0x0101010101010101u) * 0x0102040810204080u >> 56);
    }
#endif
    for (; i < count; i += 8) {
        uint8_t byte = 0;
        for (int k = 0; k < 8 && i + k < count; k++) byte = (uint8_t)(byte | (bytes[i + k] & 1) << k);
        to[i / 8] = byte;
    }
}

/* Return for each slot of that node whether the value was absent: not even null. Nothing is written for a column that has no
 * slot. Call kp_sizes before. */
void kp_absent(decoder *d, int index, uint8_t *out) {
    const column *c = d->nodes[index];
    for (int64_t i = 0; i < c->rows; i++) out[i] = c->valid[i] == 2;
}

/* Copy that node to Arrow's buffers: validity bitmap, offsets (rows + 1), values. A buffer that is NULL is not written. Call
 * kp_sizes before. */
void kp_copy(decoder *d, int index, uint8_t *validity, int32_t *offsets, char *values) {
    const column *c = d->nodes[index];
    if (validity) bits(c->valid, c->rows, validity);
    if (offsets) {
        offsets[0] = 0;
        if (c->rows) memcpy(offsets + 1, c->ends, (size_t)c->rows * sizeof(int32_t));
    }
    if (values && c->rows) {
        if (c->kind == BOOLEAN) bits((const uint8_t *)c->values, c->rows, (uint8_t *)values);
        else if (c->kind == TEXT) {
            if (c->used) memcpy(values, c->values, c->used); /* NULL if all texts are empty */
        }
        else memcpy(values, c->values, (size_t)c->rows * (size_t)(c->kind == DOUBLE ? 8 : c->width));
    }
}
