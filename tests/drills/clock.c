/* Set the clock of a program back by a day, from the moment that the file $CLOCK_SET_BACK exists.
 *
 *     cc -shared -fPIC -o clock.so clock.c        then run the program with LD_PRELOAD=clock.so
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t behind(void) {
    const char *file = getenv("CLOCK_SET_BACK");
    return file && access(file, F_OK) == 0 ? 24 * 60 * 60 : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int status = syscall(SYS_clock_gettime, clock, now);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec -= behind();
    return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int status = syscall(SYS_gettimeofday, now, zone);
    if (status == 0)
        now->tv_sec -= behind();
    return status;
}

time_t time(time_t *now) {
    struct timespec read;
    clock_gettime(CLOCK_REALTIME, &read);
    if (now)
        *now = read.tv_sec;
    return read.tv_sec;
}
