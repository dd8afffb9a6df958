/* The wall clock of a process, an hour ahead once the file CHAOS_DIR/jump is there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t which, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *) = 0;
    static char path[4096];
    if (!real) {
        const char *place = getenv("CHAOS_DIR");
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
        snprintf(path, sizeof path, "%s/jump", place ? place : "");
    }
    int code = real(which, now);
    if (code == 0 && which == CLOCK_REALTIME && access(path, F_OK) == 0) now->tv_sec += 3600;
    return code;
}
