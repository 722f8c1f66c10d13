/* Members without a column, noted in one pass for json/new_members.py: their distinct names, and a pair of numbers for each member.
 *
 * Names are positions in the block's bytes. The time is linear for all names: a name that collides with too many others goes to
 * exact code.
 */
#ifndef KPIPE_NEW_MEMBERS_H
#define KPIPE_NEW_MEMBERS_H
#include "columns.h"

#define MOST_PROBES 128

/* Types of values, in the order of json/new_members.py. INSIDE: some member is inside a column; its name is not noted. */
enum { OF_NULL = 0, OF_BOOLEAN = 1, OF_BIGINT = 2, OF_DOUBLE = 3, OF_TEXT = 4, OF_MEMBERS = 5 };
#define INSIDE -1

typedef struct {
    uint64_t hash;
    const char *start;
    int64_t length;
    int64_t payload; /* the last one with a member of that name, to find duplicates */
} new_name;

typedef struct {
    int64_t payload, code; /* code: index of the name times 8, plus the type of the value; or INSIDE */
} new_member;

typedef struct {
    new_name *names;
    int64_t count, room;
    int32_t *places; /* a hash table of indices of names, -1 where free */
    uint64_t mask;
    new_member *members;
    int64_t noted, members_room;
} new_members;

static inline void free_notes(new_members *n) {
    free(n->names);
    free(n->places);
    free(n->members);
}

/* Forget the members of the last block. */
static inline void clear_notes(new_members *n) {
    if (n->count) memset(n->places, 0xff, (size_t)(n->mask + 1) * sizeof(int32_t));
    n->count = n->noted = 0;
}

/* Make room for another name: at least twice as many places as names. */
static inline int more_names(new_members *n) {
    int64_t room = n->room ? n->room * 2 : 64;
    if (room > INT32_MAX / 4) return FAIL;
    new_name *names = realloc(n->names, (size_t)room * sizeof *names);
    if (!names) return FAIL;
    n->names = names;
    size_t places = (size_t)room * 2;
    int32_t *to = realloc(n->places, places * sizeof *to);
    if (!to) return FAIL;
    n->places = to;
    n->room = room;
    n->mask = places - 1;
    memset(to, 0xff, places * sizeof *to);
    for (int64_t i = 0; i < n->count; i++) {
        uint64_t at = names[i].hash & n->mask;
        while (to[at] >= 0) at = (at + 1) & n->mask;
        to[at] = (int32_t)i;
    }
    return OK;
}

/* Return the index of a name, or -1: it is a duplicate in its payload, collides with too many names, or (`broken`) memory is full. */
static inline int64_t note_name(new_members *n, const char *start, size_t length, uint64_t hash, int64_t payload, int *broken) {
    if (n->count == n->room && !more_names(n)) {
        *broken = 1;
        return -1;
    }
    uint64_t at = hash & n->mask;
    for (int probes = 0; n->places[at] >= 0; at = (at + 1) & n->mask) {
        new_name *name = &n->names[n->places[at]];
        if (name->hash == hash && (size_t)name->length == length && !memcmp(name->start, start, length)) {
            if (name->payload == payload) return -1;
            name->payload = payload;
            return n->places[at];
        }
        if (++probes == MOST_PROBES) return -1;
    }
    n->places[at] = (int32_t)n->count;
    n->names[n->count] = (new_name){hash, start, (int64_t)length, payload};
    return n->count++;
}

static inline int note_member(new_members *n, int64_t payload, int64_t code, int *broken) {
    if (n->noted == n->members_room) {
        int64_t room = n->members_room ? n->members_room * 2 : 1024;
        new_member *members = realloc(n->members, (size_t)room * sizeof *members);
        if (!members) {
            *broken = 1;
            return FAIL;
        }
        n->members = members;
        n->members_room = room;
    }
    n->members[n->noted++] = (new_member){payload, code};
    return OK;
}

/* Return the type of a valid JSON value [p, end). Integers beyond 64 bits are DOUBLE. */
static inline int type_noted(const char *p, const char *end) {
    switch (*p) {
    case 'n': return OF_NULL;
    case 't': case 'f': return OF_BOOLEAN;
    case '"': return OF_TEXT;
    case '[': case '{': return OF_MEMBERS;
    }
    int negative = *p == '-';
    uint64_t value = 0;
    p += negative;
    const char *first = p;
    for (; p < end; p++) {
        if (*p < '0' || *p > '9') return OF_DOUBLE;
        value = value * 10 + (uint64_t)(*p - '0');
    }
    if (p - first > 19) return OF_DOUBLE; /* 19 digits never overflow */
    return value > (uint64_t)INT64_MAX + (uint64_t)negative ? OF_DOUBLE : OF_BIGINT;
}
#endif
