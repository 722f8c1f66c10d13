/* Spoilt data through the decoder of Avro, or of Protobuf, under the sanitizers: buffers are exactly as large as what they hold.
 *
 * What is decoded comes from a file: the sizes of seven arrays, two numbers (nodes; of Protobuf also enums,
 * of Avro -1), then the arrays (steps, symbols, columns, ranges, names, seeds,
 * bounds of the seeds).
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *kp_avro_new(const int64_t *, int64_t, int64_t, const char *, int64_t, const int32_t *, const uint64_t *, const char *);
void kp_avro_free(void *);
int64_t kp_avro_decode(void *, const uint8_t *, const int64_t *, const int64_t *, int64_t, int64_t, uint8_t *);
void *kp_protobuf_new(const int64_t *, int64_t, int64_t, int64_t, const char *, int64_t, const int32_t *, const uint64_t *, const char *);
void kp_protobuf_free(void *);
int64_t kp_protobuf_decode(void *, const uint8_t *, const int64_t *, const int64_t *, int64_t, int64_t, uint8_t *);
int64_t kp_sizes(void *, int64_t *);
void kp_copy(void *, int, uint8_t *, int32_t *, char *);

static uint64_t state;
static uint64_t chance(uint64_t below) {
    state ^= state << 13; state ^= state >> 7; state ^= state << 17;
    return state % below;
}

static void *parts[8];
static int kept;

static void *part(FILE *file, int64_t bytes) {
    void *found = malloc((size_t)bytes ? (size_t)bytes : 1);
    if (!found || fread(found, 1, (size_t)bytes, file) != (size_t)bytes) exit(2);
    return parts[kept++] = found;
}

/* What is built, copied into buffers of exactly its size. */
static int copied(void *decoder, const int32_t *kinds, int64_t count) {
    int64_t nodes = kp_sizes(decoder, NULL), *sizes = malloc((size_t)nodes * 3 * sizeof(int64_t));
    kp_sizes(decoder, sizes);
    for (int node = 1; node < count && node < nodes; node++) {
        const int64_t *size = sizes + 3 * node;
        uint8_t *valid = malloc((size_t)(size[0] + 7) / 8 + 1);
        int32_t *ends = calloc((size_t)size[0] + 1, 4);
        int kind = kinds[4 * node];
        size_t bytes = kind == 5 ? (size_t)size[1] : kind == 4 ? (size_t)size[0] * 8 : kind == 3 ? (size_t)(size[0] * kinds[4 * node + 1]) : (size_t)(size[0] + 7) / 8;
        char *values = malloc(bytes ? bytes : 1);
        kp_copy(decoder, node, valid, kind == 5 || kind == 1 ? ends : NULL, kind == 0 || kind == 1 ? NULL : values);
        int wrong = kind == 5 && ends[size[0]] != size[1];
        free(valid); free(ends); free(values);
        if (wrong) { printf("offsets and bytes differ\n"); free(sizes); return 0; }
    }
    free(sizes);
    return 1;
}

int main(int argc, char **argv) {
    FILE *file = argc > 3 ? fopen(argv[3], "rb") : NULL;
    if (!file) return 2;
    long rounds = atol(argv[1]);
    state = strtoull(argv[2], NULL, 10) | 1;
    int64_t *sizes = part(file, 9 * 8);
    int64_t *steps = part(file, sizes[0]);
    char *symbols = part(file, sizes[1]);
    int32_t *columns = part(file, sizes[2]);
    uint64_t *ranges = part(file, sizes[3]);
    char *names = part(file, sizes[4]);
    uint8_t *seeds = part(file, sizes[5]);
    int64_t *places = part(file, sizes[6]), many = sizes[6] / 8 - 1, nodes = sizes[7], enums = sizes[8], good = 0;
    void *decoder = enums < 0 ? kp_avro_new(steps, sizes[0] / 8, nodes, symbols, sizes[1], columns, ranges, names)
                              : kp_protobuf_new(steps, sizes[0] / 8, nodes, enums, symbols, sizes[1], columns, ranges, names);
    for (long round = 0; round < rounds; round++) {
        int64_t bounds[9] = {0}, chosen[8], count = (int64_t)chance(9), skip = (int64_t)chance(2) * 5;
        uint8_t *all = malloc(1);
        for (int64_t i = 0; i < count; i++) {
            uint64_t seed = chance((uint64_t)many);
            size_t length = (size_t)(places[seed + 1] - places[seed]);
            uint8_t *item = malloc(length + 6);
            memcpy(item, "\0\0\0\0\1", 5);
            memcpy(item + skip, seeds + places[seed], length);
            length += (size_t)skip;
            for (uint64_t spoils = chance(4); spoils && length; spoils--) {
                size_t at = chance(length);
                switch (chance(4)) {
                case 0: item[at] = (uint8_t)chance(256); break;
                case 1: item[at] = (uint8_t)"\377\376\200\177\0\1\2\3"[chance(8)]; break;
                case 2: memmove(item + at, item + at + 1, --length - at); break;
                default: length = at;
                }
            }
            all = realloc(all, (size_t)bounds[i] + length + 1);
            memcpy(all + bounds[i], item, length);
            free(item);
            bounds[i + 1] = bounds[i] + (int64_t)length + 1;
            all[bounds[i + 1] - 1] = '\n';
            chosen[i] = i;
        }
        uint8_t *status = malloc((size_t)count + 1);
        int64_t rows = (enums < 0 ? kp_avro_decode : kp_protobuf_decode)(decoder, all, bounds, chosen, count, skip, status);
        if (rows < 0) { printf("out of memory\n"); return 1; }
        good += rows;
        if (!copied(decoder, columns, sizes[2] / 16)) return 1;
        free(status); free(all);
    }
    (enums < 0 ? kp_avro_free : kp_protobuf_free)(decoder);
    fclose(file);
    while (kept) free(parts[--kept]);
    printf("%lld rows\n", (long long)good);
    return good > 0 ? 0 : 1;
}
