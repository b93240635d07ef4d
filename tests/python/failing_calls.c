/* Has the n-th call of one kind fail, for the tests of saving: loaded before the C library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static char kind[16];
static int left = -1, number = EIO;

/* The call of this kind after `calls` others fails with `error`; returns how many calls were still to come. */
int fail_after(const char *which, int calls, int error) {
    int before = left;
    strncpy(kind, which, sizeof kind - 1);
    left = calls;
    number = error;
    return before;
}

static int fails(const char *which) {
    if (left < 0 || strcmp(which, kind) != 0) return 0;
    if (left-- > 0) return 0;
    errno = number;
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int file, const void *bytes, size_t count) {
    if (fails("write")) return -1;
    if (count > 1 && fails("short")) return REAL(write)(file, bytes, count / 2);
    return REAL(write)(file, bytes, count);
}
int fsync(int file) { return fails("fsync") ? -1 : REAL(fsync)(file); }
int rename(const char *from, const char *to);
int rename(const char *from, const char *to) { return fails("rename") ? -1 : REAL(rename)(from, to); }
int fchmod(int file, mode_t mode);
int fchmod(int file, mode_t mode) { return fails("fchmod") ? -1 : REAL(fchmod)(file, mode); }
int flock(int file, int how);
int flock(int file, int how) { return fails("flock") ? -1 : REAL(flock)(file, how); }
