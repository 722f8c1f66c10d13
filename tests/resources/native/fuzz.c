/* Spoilt payloads through the decoders, under the sanitizers: buffers are exactly as large as what they hold. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *kp_json_new(const int32_t *, const uint64_t *, const char *);
void kp_json_free(void *);
int64_t kp_json_decode(void *, const char *, const int64_t *, int64_t, uint8_t *);
void kp_json_note(void *);
void kp_json_select(void *);
void kp_json_notes(void *, const char *, int64_t *, int64_t *, int64_t *);
void *kp_csv_new(const int64_t *, const int64_t *, const char *, const int32_t *);
void kp_csv_free(void *);
int64_t kp_csv_decode(void *, const char *, const int64_t *, int64_t, uint8_t *, int64_t *);
int64_t kp_sizes(void *, int64_t *);
void kp_copy(void *, int, uint8_t *, int32_t *, char *);
int64_t kp_count(const char *, int64_t, char, char);
int64_t kp_line_ends(const char *, int64_t, int64_t *, int64_t);
int64_t kp_instants(const char *, const int32_t *, const uint8_t *, int64_t, int64_t *);

/* STRUCT(a BIGINT, b VARCHAR, c DOUBLE, d STRUCT(x TINYINT, y VARCHAR[]), e BOOLEAN) */
enum { NODES = 9 };
static const int32_t nodes[] = {0, 0, 5, 0, 3, 8, 0, 1, 5, 0, 0, 1, 4, 0, 0, 1, 0, 1, 2, 1,
                                3, 1, 0, 1, 1, 0, 1, 1, 5, 0, 0, 0, 2, 0, 0, 1};
static const uint64_t ranges[2 * NODES] = {0, 0, INT64_MAX, 1ull << 63, 0, 0, 0, 0, 0, 0, 127, 128};
static const char *seeds[] = {
    "{\"a\":-9223372036854775808,\"b\":\"x\\ud83d\\ude00\\n\",\"c\":1.7976931348623157e308,\"d\":{\"x\":-128,\"y\":[\"\",null,\"q\"]},\"e\":true}",
    "{\"e\":false,\"d\":null,\"c\":0.1234567890123456789012,\"b\":null,\"a\":7}",
    "{ \"d\" : { \"y\" : [ ] , \"x\" : 1 } , \"b\" : \"0123456789abcdef0123456789\\\\\" }",
    "{}",
    "{\"new\":-9223372036854775809,\"a\":1,\"other\":[{\"new\":\"\\u00e9\"}],\"third\":1e5,\"d\":{\"x\":1,\"z\":null},\"\xc3\xa9\":true}",
    "{\"b\":\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\",\"c\":1e-400}",
    "a,\"b,\"\"\\\"\",c\n\\N,NULL,\"NULL\"\nx\\,y,\\\n,",
    "1,2,3\r\n\"4\",\"5\"x\",\"\"\r\n",
    "||>>||\n>>x||y||\"z\"",
};
enum { SEEDS = sizeof seeds / sizeof *seeds };
static uint64_t state;
static uint64_t chance(uint64_t below) {
    state ^= state << 13; state ^= state >> 7; state ^= state << 17;
    return state % below;
}

/* What is built, copied into buffers of exactly its size. */
static int copied(void *decoder, const int32_t *kinds, int count) {
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

/* Notes of the members without a column, copied into buffers of exactly their size: each name and payload is of the block. */
static int noted(void *decoder, const char *all, int64_t length, int64_t count, int64_t *members) {
    int64_t sizes[2];
    kp_json_notes(decoder, all, sizes, NULL, NULL);
    int64_t *names = malloc((size_t)sizes[0] * 16 + 1), *found = malloc((size_t)sizes[1] * 16 + 1);
    kp_json_notes(decoder, all, sizes, names, found);
    int good = 1;
    for (int64_t i = 0; i < sizes[0]; i++) good &= names[2 * i] > 0 && names[2 * i] + names[2 * i + 1] < length;
    for (int64_t i = 0; i < sizes[1]; i++)
        good &= found[2 * i] >= 0 && found[2 * i] < count && found[2 * i + 1] >= -1 && found[2 * i + 1] < sizes[0] * 8;
    *members += sizes[1];
    free(names); free(found);
    if (!good) printf("notes beyond the block\n");
    return good;
}

/* A spoilt timestamp, in a buffer of exactly its size: how many were converted. */
static int64_t instant(void) {
    static const char *forms[] = {"2026-11-20T10:00:00.123456+05:30", "2024-02-29 23:59:59Z", "0001-01-01T00:00:00-14"};
    const char *form = forms[chance(3)];
    size_t whole = strlen(form), length = chance(2) ? whole : chance(whole + 1);
    char *text = malloc(length ? length : 1);
    memcpy(text, form, length);
    if (length && chance(2)) text[chance(length)] = "0129-+:.TZ "[chance(11)];
    int32_t ends[] = {0, (int32_t)length};
    int64_t micros;
    int64_t done = kp_instants(text, ends, NULL, 1, &micros);
    free(text);
    return done;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1000;
    state = argc > 2 ? strtoull(argv[2], NULL, 10) | 1 : 1;
    void *decoder = kp_json_new(nodes, ranges, "abcdxye");
    void *noting = kp_json_new(nodes, ranges, "abcdxye");
    kp_json_note(noting);
    void *selecting = kp_json_new(nodes, ranges, "abcdxye");
    kp_json_select(selecting);
    int64_t good = 0, converted = 0, members = 0, inside = 0;
    for (long round = 0; round < rounds; round++) {
        int64_t bounds[9] = {0}, count = (int64_t)chance(9);
        char *all = malloc(1);
        for (int64_t i = 0; i < count; i++) {
            const char *seed = seeds[chance(SEEDS)];
            size_t length = strlen(seed);
            char item[512];
            memcpy(item, seed, length);
            for (uint64_t spoils = chance(4); spoils && length; spoils--) {
                size_t at = chance(length);
                switch (chance(4)) {
                case 0: item[at] = (char)chance(256); break;
                case 1: item[at] = "\"\\{}[],:0-.eu\nN|>\r"[chance(18)]; break;
                case 2: memmove(item + at, item + at + 1, --length - at); break;
                default: length = at;
                }
            }
            all = realloc(all, (size_t)bounds[i] + length + 1);
            memcpy(all + bounds[i], item, length);
            bounds[i + 1] = bounds[i] + (int64_t)length + 1;
            all[bounds[i + 1] - 1] = '\n';
        }
        uint8_t *status = malloc((size_t)count + 1);
        int64_t rows = kp_json_decode(decoder, all, bounds, count, status);
        good += rows;
        if (!copied(decoder, nodes, NODES)) return 1;
        if (kp_json_decode(noting, all, bounds, count, status) < rows || !copied(noting, nodes, NODES)) return 1;
        if (!noted(noting, all, bounds[count], count, &members)) return 1;
        if (kp_json_decode(selecting, all, bounds, count, status) < rows || !copied(selecting, nodes, NODES)) return 1;
        if (!noted(selecting, all, bounds[count], count, &inside)) return 1;
        /* CSV: two of three columns; comma, quote and backslash, or longer signs and nothing else */
        int64_t signs[][2] = {{'"', '\\'}, {-1, -1}, {'"', '"'}}, numbers[][8] = {{1, 1, 0, -1, 0, 0, 3, 2}, {2, 1, 2, 4, 1, 1, 3, 2}, {1, 2, 0, 0, 1, 0, 3, 2}};
        int32_t goes[] = {1, -1, 0}, texts[12] = {0, 0, 0, 0, 5, 0, 0, 0, 5};
        uint64_t which = chance(3);
        void *csv = kp_csv_new(signs[which], numbers[which], which == 1 ? "||\n>>NULL" : which ? ",\r\n" : ",\n", goes);
        int64_t *counts = malloc((size_t)(count + 1) * 8);
        good += kp_csv_decode(csv, all, bounds, count, status, counts);
        if (!copied(csv, texts, 3)) return 1;
        kp_csv_free(csv);
        free(counts);
        converted += instant();
        int64_t lines = kp_count(all, bounds[count], '\n', '\n'), *places = malloc((size_t)(lines + 1) * 8);
        if (kp_line_ends(all, bounds[count], places, lines) != lines) abort();
        free(places); free(status); free(all);
    }
    kp_json_free(decoder);
    kp_json_free(noting);
    kp_json_free(selecting);
    printf("%lld rows\n", (long long)good);
    return good > 0 && converted > 0 && members > 0 && inside > 0 ? 0 : 1;
}
