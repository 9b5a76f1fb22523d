/* A second library to preload, which counts the read locks that it passes on, and prints the count
   at exit. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static unsigned long count;

int pthread_rwlock_rdlock(pthread_rwlock_t *lock) {
  static int (*next)(pthread_rwlock_t *);
  if (!next) next = (int (*)(pthread_rwlock_t *))dlsym(RTLD_NEXT, "pthread_rwlock_rdlock");
  __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
  return next(lock);
}

__attribute__((destructor)) static void end(void) { fprintf(stderr, "second: %lu\n", count); }
