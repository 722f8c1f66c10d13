/* Columns that are built, as Arrow's buffers. */
#include "columns.h"

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

/* Of the node with that index (0 is the root): rows, bytes of its values, whether some slot may be null. */
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

/* For each slot of that node whether nothing was there, not even a null. */
void kp_absent(decoder *d, int index, uint8_t *out) {
    column *c = node_at(&d->root, &index);
    for (int64_t i = 0; i < c->rows; i++) out[i] = c->valid[i] == 2;
}

/* Arrow's buffers of that node: validity bitmap, offsets (rows + 1), values. Those that are NULL are left out. */
void kp_copy(decoder *d, int index, uint8_t *validity, int32_t *offsets, char *values) {
    column *c = node_at(&d->root, &index);
    if (validity) bits(c->valid, c->rows, validity);
    if (offsets) {
        offsets[0] = 0;
        if (c->rows) memcpy(offsets + 1, c->ends, (size_t)c->rows * sizeof(int32_t));
    }
    if (values && c->rows) {
        if (c->kind == BOOLEAN) bits((const uint8_t *)c->values, c->rows, (uint8_t *)values);
        else if (c->kind == TEXT) memcpy(values, c->values, c->used);
        else memcpy(values, c->values, (size_t)c->rows * (size_t)(c->kind == DOUBLE ? 8 : c->width));
    }
}
