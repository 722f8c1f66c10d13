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

void kp_release(column *c) {
    for (int i = 0; i < c->count; i++) kp_release(&c->children[i]);
    free(c->children);
    free(c->name);
    free(c->valid);
    free(c->ends);
    free(c->values);
}

static column *node_at(column *c, int *index) {
    if ((*index)-- == 0) return c;
    for (int i = 0; i < c->count; i++) {
        column *found = node_at(&c->children[i], index);
        if (found) return found;
    }
    return NULL;
}

/* Return for the node with that index (0 is the root): rows, bytes of its values, whether a slot may be null. */
void kp_size(decoder *d, int index, int64_t *out) {
    column *c = node_at(&d->root, &index);
    out[0] = c->rows;
    out[1] = (int64_t)c->used;
    out[2] = c->some_null;
    c->some_null = 0;
}

static void bits(const uint8_t *bytes, int64_t count, uint8_t *to) {
    for (int64_t i = 0; i < count; i += 8) {
        uint8_t byte = 0;
        for (int k = 0; k < 8 && i + k < count; k++) byte = (uint8_t)(byte | (bytes[i + k] & 1) << k);
        to[i / 8] = byte;
    }
}

/* Return for each slot of that node whether the value was absent: not even null. */
void kp_absent(decoder *d, int index, uint8_t *out) {
    column *c = node_at(&d->root, &index);
    for (int64_t i = 0; i < c->rows; i++) out[i] = c->valid[i] == 2;
}

/* Copy that node to Arrow's buffers: validity bitmap, offsets (rows + 1), values. A buffer that is NULL is not written. */
void kp_copy(decoder *d, int index, uint8_t *validity, int32_t *offsets, char *values) {
    column *c = node_at(&d->root, &index);
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
