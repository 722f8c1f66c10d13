/* Convert texts of timestamps in the form of RFC 3339 to microseconds since 1970 UTC: 2026-11-20T10:00:00.25+01:00.
 *
 * T may be a space; fraction, zone and the zone's minutes may be missing. Other texts are left to DuckDB, which accepts more.
 * tests/resources/duckdb_engine compares the two.
 */
#include <stdint.h>

/* Read a number of exactly that many digits. */
static inline int digits(const char *p, int count, int *out) {
    int value = 0;
    for (int i = 0; i < count; i++) {
        if (p[i] < '0' || p[i] > '9') return 0;
        value = value * 10 + (p[i] - '0');
    }
    *out = value;
    return 1;
}

/* Days before each month of a common year. */
static const int BEFORE[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};

/* Read YYYY-MM-DD, of year 1 or later, as days since 1970. */
static inline int date(const char *p, int64_t *out) {
    int year, month, day;
    if (!digits(p, 4, &year) || p[4] != '-' || !digits(p + 5, 2, &month) || p[7] != '-' || !digits(p + 8, 2, &day)) return 0;
    if (year < 1 || month < 1 || month > 12 || day < 1) return 0;
    int leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0), past = year - 1;
    if (day > BEFORE[month] - BEFORE[month - 1] + (leap && month == 2)) return 0;
    int64_t since = 365ll * past + past / 4 - past / 100 + past / 400 + BEFORE[month - 1] + (leap && month > 2) + day - 1;
    *out = since - 719162; /* days from 0001-01-01 to 1970-01-01 */
    return 1;
}

static int instant(const char *p, int64_t length, int64_t *out) {
    int64_t days;
    int hour, minute, second, micros = 0, zone_hour = 0, zone_minute = 0, sign = 1;
    const char *end = p + length;
    if (length < 19 || !date(p, &days) || (p[10] != 'T' && p[10] != ' ') || p[13] != ':' || p[16] != ':') return 0;
    if (!digits(p + 11, 2, &hour) || !digits(p + 14, 2, &minute) || !digits(p + 17, 2, &second)) return 0;
    if (hour > 23 || minute > 59 || second > 59) return 0;
    p += 19;
    if (p < end && *p == '.') {
        int scale = 100000;
        const char *point = ++p;
        for (; p < end && *p >= '0' && *p <= '9'; p++, scale /= 10) micros += (*p - '0') * scale;
        if (p == point || p - point > 6) return 0;
    }
    if (p < end && *p == 'Z') {
        p++;
    } else if (end - p >= 3 && (*p == '+' || *p == '-')) {
        sign = *p == '-' ? -1 : 1;
        if (!digits(p + 1, 2, &zone_hour) || zone_hour > 14) return 0;
        p += 3;
        if (end - p == 3 && *p == ':') {
            if (!digits(p + 1, 2, &zone_minute) || zone_minute > 59) return 0;
            p += 3;
        }
    }
    if (p != end) return 0;
    int64_t minutes = (days * 24 + hour) * 60 + minute - sign * (zone_hour * 60 + zone_minute);
    *out = (minutes * 60 + second) * 1000000 + micros;
    return 1;
}

/* Convert `count` texts: text i is [ends[i], ends[i + 1]). `valid` has a byte for each; NULL: all are. An invalid one gives 0.
 * Returns how many were converted: fewer than `count` if another form was found. */
int64_t kp_instants(const char *texts, const int32_t *ends, const uint8_t *valid, int64_t count, int64_t *out) {
    for (int64_t at = 0; at < count; at++) {
        out[at] = 0;
        if ((!valid || valid[at]) && !instant(texts + ends[at], ends[at + 1] - ends[at], &out[at])) return at;
    }
    return count;
}
