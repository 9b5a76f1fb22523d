/* A library to preload whose clocks stand still, as those of libfaketime may. With -DMAIN: a program
   that reads again while a writer waits, and that waits until a time. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#ifndef MAIN
int clock_gettime(clockid_t clock, struct timespec *at) {
  (void)clock;
  *at = (struct timespec){ 1577836800, 0 };
  return 0;
}
#else
#define MUST(what)                                                                                 \
  do {                                                                                             \
    if (!(what)) { fprintf(stderr, "failed: %s, line %d\n", #what, __LINE__); abort(); }           \
  } while (0)

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

static void *writes(void *of) {
  MUST(!pthread_rwlock_wrlock(&lock));
  MUST(!pthread_rwlock_unlock(&lock));
  return of;
}

int main(void) {
  pthread_t thread;
  struct timespec at;
  MUST(!pthread_rwlock_rdlock(&lock));
  MUST(!pthread_create(&thread, NULL, writes, NULL));
  for (int i = 0; i < 10; i++) {
    usleep(5000);
    MUST(!pthread_rwlock_rdlock(&lock));
    MUST(!pthread_rwlock_unlock(&lock));
  }
  /* By the kernel's clock, this is over. */
  MUST(!clock_gettime(CLOCK_REALTIME, &at));
  at.tv_nsec = 0;
  MUST(pthread_rwlock_timedwrlock(&lock, &at));
  MUST(!pthread_rwlock_unlock(&lock));
  MUST(!pthread_join(thread, NULL));
  puts("ok");
}
#endif
