/* Bytes counted, and newlines found. Loops that a compiler makes wide; bytes.count takes a call of memchr for each one. */
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

int64_t kp_count(const char *p, int64_t length, char what) {
    int64_t count = 0;
    while (length > 0) { /* in pieces, so that a byte holds the count of each lane */
        int64_t piece = length < 4096 ? length : 4096;
        uint32_t some = 0;
        for (int64_t i = 0; i < piece; i++) some += p[i] == what;
        count += some;
        p += piece;
        length -= piece;
    }
    return count;
}

/* Position behind each newline; `to` has room for all of them. */
void kp_line_ends(const char *p, int64_t length, int64_t *to) {
    int64_t at = 0;
#ifdef __SSE2__
    const __m128i newline = _mm_set1_epi8('\n');
    for (; at + 16 <= length; at += 16) {
        unsigned found = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(p + at)), newline));
        while (found) {
            *to++ = at + __builtin_ctz(found) + 1;
            found &= found - 1;
        }
    }
#endif
    for (; at < length; at++)
        if (p[at] == '\n') *to++ = at + 1;
}
