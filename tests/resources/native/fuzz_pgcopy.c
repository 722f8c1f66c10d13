/* Random columns through the writer of COPY's rows, under the sanitizers: buffers are exactly as large as what they hold. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t code, width, add, first;
    const uint8_t *valid, *values;
    const int64_t *ends;
} column;
int64_t kp_pgcopy_room(const column *, int64_t, int64_t);
int64_t kp_pgcopy(const column *, int64_t, int64_t, uint8_t *);

static uint64_t state;
static uint64_t chance(uint64_t below) {
    state ^= state << 13; state ^= state >> 7; state ^= state << 17;
    return state % below;
}

static uint8_t *noise(size_t size) {
    uint8_t *made = malloc(size ? size : 1);
    for (size_t at = 0; at < size; at++) made[at] = chance(4) ? (uint8_t)chance(256) : (uint8_t)(chance(2) * 255);
    return made;
}

/* Texts, or decimal numbers of up to 39 digits. */
static uint8_t *texts(int64_t rows, int numbers, int64_t **ends) {
    uint8_t *made = malloc((size_t)rows * 48 + 1);
    int64_t used = 0;
    *ends = malloc(((size_t)rows + 1) * 8);
    (*ends)[0] = 0;
    for (int64_t row = 0; row < rows; row++) {
        if (numbers && chance(3)) made[used++] = '-';
        for (uint64_t left = numbers ? 1 + chance(20) : chance(40); left; left--) made[used++] = (uint8_t)(numbers ? '0' + chance(10) : chance(256));
        if (numbers && chance(2)) {
            made[used++] = '.';
            for (uint64_t left = 1 + chance(19); left; left--) made[used++] = (uint8_t)('0' + chance(10));
        }
        (*ends)[row + 1] = used;
    }
    uint8_t *exact = malloc(used ? (size_t)used : 1);
    memcpy(exact, made, (size_t)used);
    free(made);
    return exact;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1000;
    state = argc > 2 ? strtoull(argv[2], NULL, 10) | 1 : 1;
    for (long round = 0; round < rounds; round++) {
        int64_t count = (int64_t)chance(6), rows = (int64_t)chance(40);
        column *columns = calloc((size_t)count + 1, sizeof *columns);
        for (column *c = columns; c < columns + count; c++) {
            c->code = (int64_t)chance(5);
            c->first = (int64_t)chance(9);
            c->width = c->code ? 0 : 2 << chance(3);
            c->add = c->width > 2 && chance(2) ? (c->width == 4 ? -10957 : -946684800000000) : 0;
            size_t bits = (size_t)(c->first + rows + 7) / 8;
            if (chance(2)) c->valid = noise(bits);
            int64_t *ends = NULL;
            c->values = c->code == 0 ? noise((size_t)(rows * c->width)) : c->code == 1 ? noise(bits) : texts(rows, c->code == 4, &ends);
            c->ends = ends;
        }
        int64_t room = kp_pgcopy_room(columns, count, rows);
        uint8_t *made = malloc(room ? (size_t)room : 1), *p = made;
        int64_t used = kp_pgcopy(columns, count, rows, made);
        if (used < 0 || used > room) { printf("round %ld: %lld of %lld bytes\n", round, (long long)used, (long long)room); return 1; }
        for (int64_t row = 0; row < rows; row++) { /* fields lie one behind the other, to the last byte */
            if ((p[0] << 8 | p[1]) != count) { printf("round %ld: %d fields\n", round, p[0] << 8 | p[1]); return 1; }
            p += 2;
            for (int64_t at = 0; at < count; at++) {
                int32_t size = (int32_t)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]);
                p += 4 + (size > 0 ? size : 0);
            }
        }
        if (p != made + used) { printf("round %ld: rows end elsewhere\n", round); return 1; }
        for (column *c = columns; c < columns + count; c++) { free((void *)c->valid); free((void *)c->values); free((void *)c->ends); }
        free(columns);
        free(made);
    }
    return 0;
}
