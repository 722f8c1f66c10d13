/* Count distinct member names in JSON text: an upper limit of the columns that schema inference creates. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { const char *at; int64_t length; uint64_t hash; } Name;

/* Count distinct strings that a colon follows, as they are written; -1: more than `most` (at most 2^20), or out of memory.
   Names are compared byte by byte, so that hash collisions cannot make the count too small. */
int64_t kp_names(const char *p, int64_t length, int64_t most) {
    const char *end = p + length;
    uint64_t slots = 16;
    int64_t count = 0;
    while (slots < (uint64_t)most * 2 + 2) slots *= 2;
    Name *known = calloc(slots, sizeof *known);
    if (!known) return -1;
    while (p < end && (p = memchr(p, '"', (size_t)(end - p)))) {
        const char *start = ++p;
        for (;; p++) {
            p = memchr(p, '"', (size_t)(end - p));
            if (!p) goto done;
            const char *before = p;
            while (before > start && before[-1] == '\\') before--;
            if (((p - before) & 1) == 0) break;
        }
        const char *behind = p + 1;
        while (behind < end && (*behind == ' ' || *behind == '\t' || *behind == '\r' || *behind == '\n')) behind++;
        if (behind < end && *behind == ':') {
            uint64_t hash = 14695981039346656037u;
            for (const char *c = start; c < p; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
            uint64_t slot = (hash ^ hash >> 32) & (slots - 1);
            while (known[slot].at && !(known[slot].hash == hash && known[slot].length == p - start &&
                                       !memcmp(known[slot].at, start, (size_t)(p - start))))
                slot = (slot + 1) & (slots - 1);
            if (!known[slot].at) {
                if (++count > most) break;
                known[slot] = (Name){start, p - start, hash};
            }
        }
        p = behind;
    }
done:
    free(known);
    return count > most ? -1 : count;
}

/* Return whether lists and objects are nested deeper than `most` levels; the result counts only for valid JSON. */
int64_t kp_too_deep(const char *p, int64_t length, int64_t most) {
    const char *end = p + length;
    int64_t depth = 0;
    for (; p < end; p++) {
        if (*p == '"') {
            for (const char *start = ++p;; p++) {
                p = memchr(p, '"', (size_t)(end - p));
                if (!p) return 0;
                const char *before = p;
                while (before > start && before[-1] == '\\') before--;
                if (((p - before) & 1) == 0) break;
            }
        } else if ((*p | 0x20) == '{') { /* [ and { differ by this bit only */
            if (++depth > most) return 1;
        } else if ((*p | 0x20) == '}') {
            depth -= depth > 0;
        }
    }
    return 0;
}
