/* A disk that fails: loaded before the C library (LD_PRELOAD), it stands between a process and what it writes to files.
 *
 *     BADIO=call:error:n:times:part    the n-th to (n+times-1)-th such call on a file whose path holds `part` fails
 *     BADIO_LOG=path                   every such call is written down, "call path", one a line
 *     BADIO_PART=part                  which files BADIO_LOG is about
 *
 * call: write (also pwrite), fsync (also fdatasync), truncate. error: a number of errno; 0: half of it is written;
 * -1: the process is killed there.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long seen;

static int name_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    path[size < 0 ? 0 : size] = 0;
    return size > 0;
}

static void note(const char *call, const char *path) {
    const char *log = getenv("BADIO_LOG"), *part = getenv("BADIO_PART");
    if (!log || (part && !strstr(path, part))) return;
    ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    char line[PATH_MAX + 32];
    int size = snprintf(line, sizeof line, "%s %s\n", call, path);
    if (fd >= 0) { if (real(fd, line, (size_t)size) < 0) abort(); close(fd); }
}

/* PASS: let it pass; 0: half of it; else errno. */
#define PASS (-2)

static int verdict(const char *call, int fd) {
    int kept = errno;
    char path[PATH_MAX], wanted[16], part[256];
    int error;
    long from, times;
    if (!name_of(fd, path)) { errno = kept; return PASS; }
    note(call, path);
    const char *asked = getenv("BADIO");
    int result = PASS;
    if (asked && sscanf(asked, "%15[^:]:%d:%ld:%ld:%255s", wanted, &error, &from, &times, part) == 5
        && !strcmp(wanted, call) && strstr(path, part)) {
        pthread_mutex_lock(&lock);
        seen++;
        if (seen >= from && seen < from + times) result = error;
        pthread_mutex_unlock(&lock);
    }
    if (result == -1) kill(getpid(), SIGKILL);
    errno = kept;
    return result;
}

#define FAIL(found) do { if ((found) > 0) { errno = (found); return -1; } } while (0)

ssize_t write(int fd, const void *data, size_t size) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = dlsym(RTLD_NEXT, "write");
    int found = verdict("write", fd);
    FAIL(found);
    return real(fd, data, found == 0 && size > 1 ? size / 2 : size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (!real) real = dlsym(RTLD_NEXT, "pwrite");
    int found = verdict("write", fd);
    FAIL(found);
    return real(fd, data, found == 0 && size > 1 ? size / 2 : size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "pwrite64");
    int found = verdict("write", fd);
    FAIL(found);
    return real(fd, data, found == 0 && size > 1 ? size / 2 : size, at);
}

int fsync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fsync");
    FAIL(verdict("fsync", fd));
    return real(fd);
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fdatasync");
    FAIL(verdict("fsync", fd));
    return real(fd);
}

int ftruncate(int fd, off_t size) {
    static int (*real)(int, off_t);
    if (!real) real = dlsym(RTLD_NEXT, "ftruncate");
    FAIL(verdict("truncate", fd));
    return real(fd, size);
}

int ftruncate64(int fd, off64_t size) {
    static int (*real)(int, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "ftruncate64");
    FAIL(verdict("truncate", fd));
    return real(fd, size);
}
