/* Spoilt documents through the search for members, under the sanitizers: buffers are exactly as large as what they hold. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kp_json_members(const char *, const int32_t *, const uint8_t *, int64_t, const int32_t *, int64_t, const char *, int64_t,
                     const int32_t *, int64_t, const char *, int, int32_t *, char *, uint8_t *);

static const char *seeds[] = {
    "{\"a\":{\"b\":\"x\\ud83d\\ude00\\n\\u0001\\/\"},\"c\":[1,2.5e3,{\"\\u0061\":null}]}",
    " [ { \"b\" : true , \"b\" : [ ] } , -0 , \"0123456789abcdef0123456789\\\\\" ] ",
    "{\"\\u0061\":{\"b\":123456789012345678},\"a\":{\"b\":{\"x\":1,\"y\":{\"x\":\"\xc3\xa9\"}}}}",
    "\"quoted \\\"text\\\" \\t\"", "12e5", "[[[[[[[[1]]]]]]]]", "",
};
enum { SEEDS = sizeof seeds / sizeof *seeds };
static const char path[] = "[\"a\",\"b\"]";
/* a and b as keys or places, as keys, and as place 0 and the key b */
static const int32_t steps[3][6] = {{0, -1, 1, 0, -1, 1}, {1, -1, 1, 1, -1, 1}, {2, 0, 1, 1, -1, 1}};
static uint64_t state;
static uint64_t chance(uint64_t below) {
    state ^= state << 13; state ^= state >> 7; state ^= state << 17;
    return state % below;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1000, good = 0;
    state = argc > 2 ? strtoull(argv[2], NULL, 10) | 1 : 1;
    for (long round = 0; round < rounds; round++) {
        int form = (int)chance(7), per_row = form == 6 ? 1 : 2;
        int64_t count = (int64_t)chance(5);
        int32_t texts[16] = {0}, rows[8] = {0}, ends[8];
        size_t used = 0, room = 0;
        char *data = malloc(1);
        for (int64_t at = 0; at < count; at++) {
            char item[512];
            const char *seed = seeds[chance(SEEDS)];
            size_t length = strlen(seed);
            memcpy(item, seed, length);
            for (uint64_t spoils = chance(4); spoils && length; spoils--) {
                size_t place = chance(length);
                switch (chance(4)) {
                case 0: item[place] = (char)chance(256); break;
                case 1: item[place] = "\"\\{}[],:0-.eu\nab"[chance(16)]; break;
                case 2: memmove(item + place, item + place + 1, --length - place); break;
                default: length = place;
                }
            }
            room += length + 3;
            data = realloc(data, used + length + sizeof path);
            memcpy(data + used, item, length);
            texts[at * per_row + 1] = (int32_t)(used += length);
            if (per_row == 2) {
                memcpy(data + used, path, sizeof path - 1);
                texts[at * per_row + 2] = (int32_t)(used += sizeof path - 1);
            }
            rows[at + 1] = rows[at] + per_row;
        }
        data = realloc(data, used ? used : 1);
        char *out = malloc(room ? room : 1);
        uint8_t status[8], valid[2] = {(uint8_t)(chance(3) ? 255 : chance(256)), 255};
        kp_json_members(data, texts, chance(2) ? valid : NULL, 0, rows, count, per_row == 2 ? path : NULL, sizeof path - 1,
                        steps[chance(3)], per_row == 2 ? 2 : 0, "ab", form, ends, out, status);
        for (int64_t at = 0; at < count; at++) {
            good += status[at] == 1;
            if (ends[at + 1] < ends[at] || (size_t)ends[at + 1] > room) return printf("offsets are wrong\n"), 1;
        }
        free(data);
        free(out);
    }
    if (rounds > 100 && !good) return printf("nothing was found\n"), 1;
    return 0;
}
