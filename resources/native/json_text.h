/* Strings and names of JSON; shared by json.c and json_members.c. */
#ifndef KPIPE_JSON_TEXT_H
#define KPIPE_JSON_TEXT_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif
#include "columns.h"

/* Scan from after the opening quote to the closing quote, an escape or a control character; `high`: a byte is not ASCII. */
static inline const char *text_end(const char *p, const char *end, const char *limit, int *high) {
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'), control = _mm_set1_epi8(0x1f);
    while (limit - p >= 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)p);
        __m128i stop = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(x, quote), _mm_cmpeq_epi8(x, slash)),
                                    _mm_cmpeq_epi8(_mm_max_epu8(x, control), control));
        unsigned found = (unsigned)_mm_movemask_epi8(stop), bits = (unsigned)_mm_movemask_epi8(x);
        if (found) {
            unsigned at = (unsigned)__builtin_ctz(found);
            if (bits & ((1u << at) - 1)) *high = 1;
            return p + at;
        }
        if (bits) *high = 1;
        p += 16;
    }
#endif
    while (p < end && *p != '"' && *p != '\\' && (unsigned char)*p > 0x1f) {
        if ((unsigned char)*p & 0x80) *high = 1;
        p++;
    }
    return p;
}

static inline int hex4(const char *p, unsigned *out) {
    unsigned value = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        unsigned digit = c >= '0' && c <= '9' ? (unsigned)(c - '0') : (c | 32) >= 'a' && (c | 32) <= 'f' ? (unsigned)((c | 32) - 'a' + 10) : 16;
        if (digit > 15) return 0;
        value = value << 4 | digit;
    }
    *out = value;
    return 1;
}

static inline size_t put_utf8(char *to, unsigned c) {
    if (c < 0x80) { to[0] = (char)c; return 1; }
    if (c < 0x800) { to[0] = (char)(0xc0 | c >> 6); to[1] = (char)(0x80 | (c & 63)); return 2; }
    if (c < 0x10000) {
        to[0] = (char)(0xe0 | c >> 12); to[1] = (char)(0x80 | (c >> 6 & 63)); to[2] = (char)(0x80 | (c & 63));
        return 3;
    }
    to[0] = (char)(0xf0 | c >> 18); to[1] = (char)(0x80 | (c >> 12 & 63));
    to[2] = (char)(0x80 | (c >> 6 & 63)); to[3] = (char)(0x80 | (c & 63));
    return 4;
}

static inline int escape(const char **at, const char *end, char *to, size_t *length) {
    const char *p = *at + 1; /* after the backslash */
    if (p >= end) return FAIL;
    static const char from[] = "\"\\/bfnrt", plain[] = "\"\\/\b\f\n\r\t";
    if (*p != 'u') {
        const char *found = memchr(from, *p, 8);
        if (!found) return FAIL;
        *to = plain[found - from];
        *length = 1;
        *at = p + 1;
        return OK;
    }
    unsigned c, low;
    if (end - p < 5 || !hex4(p + 1, &c)) return FAIL;
    p += 5;
    if (c >= 0xdc00 && c <= 0xdfff) return FAIL; /* unpaired surrogate */
    if (c >= 0xd800 && c <= 0xdbff) {
        if (end - p < 6 || p[0] != '\\' || p[1] != 'u' || !hex4(p + 2, &low) || low < 0xdc00 || low > 0xdfff) return FAIL;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        p += 6;
    }
    *length = put_utf8(to, c);
    *at = p;
    return OK;
}

/* Names of one object, to find duplicates. Objects with more names fall back to exact code. */
#define MOST_NAMES 64
typedef struct {
    uint64_t seen;
    int count;
    const char *at[MOST_NAMES];
    size_t length[MOST_NAMES];
} name_set;

static inline int add_name(name_set *names, const char *name, size_t length) {
    unsigned hash = length ? (unsigned)length * 7 + (unsigned char)name[0] * 31 + (unsigned char)name[length - 1] : 0;
    uint64_t bit = 1ull << (hash & 63);
    if (names->seen & bit)
        for (int i = 0; i < names->count; i++)
            if (names->length[i] == length && !memcmp(names->at[i], name, length)) return FAIL;
    if (names->count == MOST_NAMES) return FAIL;
    names->seen |= bit;
    names->at[names->count] = name;
    names->length[names->count++] = length;
    return OK;
}
#endif
