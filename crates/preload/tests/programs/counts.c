/* A library to preload that counts calls of locks and conditions in the file COUNTS, a row of eight
   words for some threads each. The columns are those of `COUNTS` in `run`. A lock is counted as
   taken if an attempt finds that another thread has it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { MUTEX, MUTEX_TAKEN, CONDITION, READ, WRITE, RWLOCK_TAKEN, SPIN };

static _Atomic uint64_t (*rows)[8];

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("COUNTS");
  int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at != MAP_FAILED) rows = at;
}

static void count(int what) {
  /* Stacks of threads lie at multiples of pages. */
  if (rows) rows[pthread_self() >> 12 & 63][what]++;
}

#define NEXT(name, version)                                                                        \
  static __typeof__(&name) next;                                                                   \
  if (!next) next = (__typeof__(next))dlvsym(RTLD_NEXT, #name, version);                           \
  if (!next) next = (__typeof__(next))dlsym(RTLD_NEXT, #name)

/* A call that an attempt precedes, which has the lock if it succeeds. */
#define TAKES(name, type, counted, attempt, taken, parameters, ...)                                \
  int name parameters {                                                                            \
    NEXT(name, "GLIBC_2.34");                                                                      \
    count(counted);                                                                                \
    int result = attempt(lock);                                                                    \
    if (result != 16 /* EBUSY */) return result;                                                   \
    count(taken);                                                                                  \
    return next(__VA_ARGS__);                                                                      \
  }

#define ONLY(name, version, counted, parameters, ...)                                              \
  int name parameters {                                                                            \
    NEXT(name, version);                                                                           \
    count(counted);                                                                                \
    return next(__VA_ARGS__);                                                                      \
  }

TAKES(pthread_mutex_lock, pthread_mutex_t, MUTEX, pthread_mutex_trylock, MUTEX_TAKEN,
      (pthread_mutex_t *lock), lock)
TAKES(pthread_rwlock_rdlock, pthread_rwlock_t, READ, pthread_rwlock_tryrdlock, RWLOCK_TAKEN,
      (pthread_rwlock_t *lock), lock)
TAKES(pthread_rwlock_wrlock, pthread_rwlock_t, WRITE, pthread_rwlock_trywrlock, RWLOCK_TAKEN,
      (pthread_rwlock_t *lock), lock)
ONLY(pthread_cond_wait, "GLIBC_2.3.2", CONDITION, (pthread_cond_t *at, pthread_mutex_t *lock), at,
     lock)
ONLY(pthread_cond_timedwait, "GLIBC_2.3.2", CONDITION,
     (pthread_cond_t *at, pthread_mutex_t *lock, const struct timespec *until), at, lock, until)
ONLY(pthread_cond_clockwait, "GLIBC_2.34", CONDITION,
     (pthread_cond_t *at, pthread_mutex_t *lock, clockid_t clock, const struct timespec *until), at,
     lock, clock, until)
ONLY(pthread_spin_lock, "GLIBC_2.34", SPIN, (pthread_spinlock_t *lock), lock)
