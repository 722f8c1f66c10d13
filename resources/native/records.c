/* Copy records from librdkafka's queue to a few buffers, without a Python object for each record.
 *
 * The message layout and the functions are librdkafka's public, stable ABI (rdkafka.h). The functions are passed as pointers,
 * so this file does not link librdkafka.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int err;
    void *topic;
    int32_t partition;
    void *value;
    size_t length;
    void *key;
    size_t key_length;
    int64_t offset;
    void *hidden;
} message;

typedef struct {
    ptrdiff_t (*consume)(void *queue, int timeout_ms, message **to, size_t most);
    void (*destroy)(message *);
    int64_t (*timestamp)(const message *, int *kind);
    int (*headers)(const message *, void **);
    int (*header_at)(const void *, size_t, const char **, const void **, size_t *);
    const char *(*text)(const message *);
} client;

typedef struct {
    char *at;
    size_t used, room;
} bytes;

#define EVENTS 16
#define EVENT_TEXT 512

typedef struct {
    int32_t code, about_partition;
    int64_t offset;
    char text[EVENT_TEXT];
} event;

/* Result of one kp_take. Python reads it through the pointers; valid until the next kp_take. */
typedef struct {
    int64_t count;       /* records */
    int64_t tombstones;  /* records without a value */
    int64_t some_header; /* whether any record has headers */
    int64_t size;        /* bytes of keys and values */
    int64_t events;
    bytes values;        /* a newline after each */
    bytes value_bounds;  /* int64, count + 1 */
    bytes offsets;       /* int64 */
    bytes timestamps;    /* int64, ms; -1: none */
    bytes has_value;     /* a byte each */
    bytes keys;
    bytes key_bounds;    /* int32, count + 1 */
    bytes has_key;
    bytes headers;       /* count (int32, -1: none), then for each: length of name, of value (-1: null), name, value */
    bytes header_bounds; /* int64, count + 1 */
    event event[EVENTS];
    client client;
    message **list;
    size_t list_room;
} taken;

static int room(bytes *b, size_t more) {
    if (b->used + more <= b->room) return 1;
    size_t size = b->room ? b->room : 4096;
    while (size < b->used + more) size *= 2;
    char *at = realloc(b->at, size);
    if (!at) return 0;
    b->at = at;
    b->room = size;
    return 1;
}

static inline int put(bytes *b, const void *from, size_t length) {
    if (!room(b, length)) return 0;
    if (length) memcpy(b->at + b->used, from, length);
    b->used += length;
    return 1;
}

static inline int put64(bytes *b, int64_t v) { return put(b, &v, 8); }
static inline int put32(bytes *b, int32_t v) { return put(b, &v, 4); }
static inline int put8(bytes *b, char v) { return put(b, &v, 1); }

static int put_headers(taken *t, const message *m) {
    void *headers = NULL;
    if (t->client.headers(m, &headers)) return put32(&t->headers, -1);
    t->some_header = 1;
    size_t place = t->headers.used;
    int32_t count = 0;
    if (!put32(&t->headers, 0)) return 0;
    const char *name;
    const void *value;
    size_t length;
    while (!t->client.header_at(headers, (size_t)count, &name, &value, &length)) {
        size_t name_length = strlen(name);
        if (!put32(&t->headers, (int32_t)name_length) || !put32(&t->headers, value ? (int32_t)length : -1)) return 0;
        if (!put(&t->headers, name, name_length) || (value && !put(&t->headers, value, length))) return 0;
        count++;
    }
    memcpy(t->headers.at + place, &count, 4);
    return 1;
}

static int put_record(taken *t, const message *m) {
    int kind;
    t->size += (int64_t)((m->value ? m->length : 0) + (m->key ? m->key_length : 0));
    t->tombstones += !m->value;
    t->count++;
    return put(&t->values, m->value, m->value ? m->length : 0) && put8(&t->values, '\n') &&
           put64(&t->value_bounds, (int64_t)t->values.used) && put8(&t->has_value, m->value != NULL) &&
           put64(&t->offsets, m->offset) && put64(&t->timestamps, t->client.timestamp(m, &kind)) &&
           put(&t->keys, m->key, m->key ? m->key_length : 0) && t->keys.used <= INT32_MAX &&
           put32(&t->key_bounds, (int32_t)t->keys.used) && put8(&t->has_key, m->key != NULL) && put_headers(t, m) &&
           put64(&t->header_bounds, (int64_t)t->headers.used);
}

static void put_event(taken *t, const message *m) {
    event *e = &t->event[t->events++];
    const char *text = t->client.text(m);
    e->code = m->err;
    e->about_partition = m->topic != NULL;
    e->offset = m->offset;
    strncpy(e->text, text ? text : "", EVENT_TEXT - 1);
    e->text[EVENT_TEXT - 1] = 0;
}

taken *kp_taken_new(const client *c) {
    taken *t = calloc(1, sizeof(taken));
    if (t) t->client = *c;
    return t;
}

void kp_taken_free(taken *t) {
    if (!t) return;
    bytes *all[] = {&t->values, &t->value_bounds, &t->offsets, &t->timestamps, &t->has_value,
                    &t->keys,   &t->key_bounds,   &t->has_key, &t->headers,    &t->header_bounds};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) free(all[i]->at);
    free(t->list);
    free(t);
}

/* Take records up to `most` records, `most_bytes` bytes, or an event; end early if none arrives within `wait_ms`.
 * `consume` waits until it has all requested records. So available records are taken without waiting, `step` at a time; if
 * there are none, one record is requested with waiting. Returns the number of records and events; -1: out of memory. */
int64_t kp_take(taken *t, void *queue, int wait_ms, int64_t most, int64_t most_bytes, int64_t step) {
    bytes *all[] = {&t->values, &t->value_bounds, &t->offsets, &t->timestamps, &t->has_value,
                    &t->keys,   &t->key_bounds,   &t->has_key, &t->headers,    &t->header_bounds};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) all[i]->used = 0;
    t->count = t->tombstones = t->some_header = t->size = t->events = 0;
    if (!put64(&t->value_bounds, 0) || !put32(&t->key_bounds, 0) || !put64(&t->header_bounds, 0)) return -1;
    if (t->list_room < (size_t)step) {
        message **list = realloc(t->list, (size_t)step * sizeof(*list));
        if (!list) return -1;
        t->list = list;
        t->list_room = (size_t)step;
    }
    int fine = 1;
    while (fine && t->count < most && t->size < most_bytes && !t->events) {
        ptrdiff_t got = t->client.consume(queue, 0, t->list, (size_t)(most - t->count < step ? most - t->count : step));
        if (got <= 0) got = t->client.consume(queue, wait_ms, t->list, 1);
        if (got <= 0) break;
        for (ptrdiff_t i = 0; i < got; i++) {
            message *m = t->list[i];
            if (m->err) {
                if (t->events < EVENTS) put_event(t, m);
            } else if (fine) {
                fine = put_record(t, m);
            }
            t->client.destroy(m);
        }
    }
    return fine ? t->count + t->events : -1;
}
