/* Preloaded into a program: its wall clock is ahead by as many seconds as the file named by CHAOS_CLOCK says, a signed
   64-bit number that may change at any time. Its monotonic clock stays what it is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t ahead(void) {
    static volatile int64_t *seconds;
    const char *name;
    if (!seconds && (name = getenv("CHAOS_CLOCK"))) {
        int file = open(name, O_RDONLY | O_CLOEXEC);
        void *there = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *seconds, PROT_READ, MAP_SHARED, file, 0);
        if (file >= 0) close(file);
        if (there != MAP_FAILED) seconds = there;
    }
    return seconds ? *seconds : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead();
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *where) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (where) *where = exact.tv_sec;
    return exact.tv_sec;
}
