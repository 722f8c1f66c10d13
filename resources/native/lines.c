/* Count bytes and find newlines with SIMD. Python's bytes.count calls memchr for each match. */
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Count `what` in a buffer; -1: the buffer contains `never`. Pass the same byte for both to count only. */
int64_t kp_count(const char *p, int64_t length, char what, char never) {
    int64_t count = 0, at = 0;
    int look = what != never;
#ifdef __SSE2__
    const __m128i wanted = _mm_set1_epi8(what), hated = _mm_set1_epi8(never), zero = _mm_setzero_si128();
    while (length - at >= 32) { /* rounds of 127 * 32 bytes: the count of a lane fits into a byte (255) */
        int64_t rounds = (length - at) / 32 < 127 ? (length - at) / 32 : 127;
        __m128i some = zero, bad = zero;
        for (; rounds > 0; rounds--, at += 32) {
            __m128i a = _mm_loadu_si128((const __m128i *)(p + at)), b = _mm_loadu_si128((const __m128i *)(p + at + 16));
            some = _mm_sub_epi8(some, _mm_add_epi8(_mm_cmpeq_epi8(a, wanted), _mm_cmpeq_epi8(b, wanted))); /* equal is -1 */
            bad = _mm_or_si128(bad, _mm_or_si128(_mm_cmpeq_epi8(a, hated), _mm_cmpeq_epi8(b, hated)));
        }
        if (look && _mm_movemask_epi8(bad)) return -1;
        __m128i sums = _mm_sad_epu8(some, zero);
        count += _mm_cvtsi128_si32(sums) + _mm_cvtsi128_si32(_mm_srli_si128(sums, 8));
    }
#endif
    for (; at < length; at++) {
        if (look && p[at] == never) return -1;
        count += p[at] == what;
    }
    return count;
}

/* Write the position after each newline; return their number, or -1 if there are more than `room`. */
int64_t kp_line_ends(const char *p, int64_t length, int64_t *to, int64_t room) {
    int64_t at = 0, count = 0;
#ifdef __SSE2__
    const __m128i newline = _mm_set1_epi8('\n');
    for (; at + 32 <= length; at += 32) {
        unsigned found = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(p + at)), newline));
        found |= (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(p + at + 16)), newline)) << 16;
        if (found && count + 32 > room) break; /* the loop below checks `room` for each byte */
        for (; found; found &= found - 1) to[count++] = at + __builtin_ctz(found) + 1;
    }
#endif
    for (; at < length; at++)
        if (p[at] == '\n') {
            if (count == room) return -1;
            to[count++] = at + 1;
        }
    return count;
}

const int kp_lines_2 = 2; /* version mark: the functions have the signatures in resources/native/__init__.py */
