/* Locks under load: that writers are alone, and that a lock may be destroyed, and its memory
   unmapped, as soon as its last user knows that it is the last one. Prints "ok", or ends the
   process. stress ROUNDS THREADS */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define MUST(what)                                                                                 \
  do {                                                                                             \
    if (!(what)) { fprintf(stderr, "failed: %s, line %d\n", #what, __LINE__); abort(); }           \
  } while (0)

static long rounds;
static int threads;
static pthread_barrier_t barrier;

static unsigned next(unsigned *random) {
  *random ^= *random << 13;
  *random ^= *random >> 17;
  *random ^= *random << 5;
  return *random;
}

/* A page with a lock, which the last of its users unmaps. */
struct object {
  pthread_rwlock_t lock;
  atomic_int users;
  int value, copy;
};

/* With `meets`, reads in reads, more often than pays. */
static struct object *new_object(int meets) {
  struct object *o =
      mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  MUST(o != MAP_FAILED);
  MUST(!pthread_rwlock_init(&o->lock, NULL));
  o->users = threads;
  for (int i = 0; i < meets * 400; i++) MUST(!pthread_rwlock_rdlock(&o->lock));
  for (int i = 0; i < meets * 400; i++) MUST(!pthread_rwlock_unlock(&o->lock));
  return o;
}

static void end(struct object *o) {
  MUST(!pthread_rwlock_destroy(&o->lock));
  MUST(!munmap(o, 4096));
}

static struct object *_Atomic shared;

/* How the last user knows it: by what the lock guards, or by a count beside it. */
static void use(struct object *o, int guarded, unsigned *random) {
  for (int i = next(random) % 600; i > 0; i--) {
    MUST(!pthread_rwlock_rdlock(&o->lock));
    MUST(o->value == o->copy);
    MUST(!pthread_rwlock_unlock(&o->lock));
  }
  if (guarded) {
    MUST(!pthread_rwlock_wrlock(&o->lock));
    o->value++;
    int last = o->value == threads;
    o->copy++;
    MUST(!pthread_rwlock_unlock(&o->lock));
    if (last) end(o);
    return;
  }
  MUST(!pthread_rwlock_rdlock(&o->lock));
  int last = atomic_fetch_sub(&o->users, 1) == 1;
  MUST(!pthread_rwlock_unlock(&o->lock));
  if (last) {
    /* Others may still read, each in a call that began before this one. */
    MUST(!pthread_rwlock_wrlock(&o->lock));
    MUST(!pthread_rwlock_unlock(&o->lock));
    end(o);
  }
}

static void *ends(void *of) {
  unsigned random = 12345 + (unsigned)(long)of;
  for (long i = 0; i < rounds; i++) {
    if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
      shared = new_object(i / 2 % 2);
    pthread_barrier_wait(&barrier);
    use(shared, i % 2, &random);
  }
  return NULL;
}

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static volatile long numbers[16];

static void *mixes(void *of) {
  unsigned random = 54321 + (unsigned)(long)of;
  long written = 0;
  for (long i = 0; i < rounds * 200; i++) {
    struct timespec soon;
    clock_gettime(CLOCK_MONOTONIC, &soon);
    soon.tv_nsec += 100000;
    if (soon.tv_nsec >= 1000000000) { soon.tv_nsec -= 1000000000; soon.tv_sec++; }
    /* Phases of reads alone, and phases with writes. */
    int writes = i % 2000 > 1500 && next(&random) % 8 == 0;
    int taken;
    switch (next(&random) % 4) {
    case 0:
      taken = !(writes ? pthread_rwlock_trywrlock(&lock) : pthread_rwlock_tryrdlock(&lock));
      break;
    case 1:
      taken = !(writes ? pthread_rwlock_clockwrlock(&lock, CLOCK_MONOTONIC, &soon)
                       : pthread_rwlock_clockrdlock(&lock, CLOCK_MONOTONIC, &soon));
      break;
    default:
      taken = 1;
      MUST(!(writes ? pthread_rwlock_wrlock(&lock) : pthread_rwlock_rdlock(&lock)));
    }
    if (!taken) continue;
    if (writes) {
      for (int j = 0; j < 16; j++) numbers[j]++;
      written++;
    } else {
      long seen = numbers[0];
      if (i % 16 == 0) MUST(!pthread_rwlock_rdlock(&lock));
      for (int j = 0; j < 16; j++) MUST(numbers[j] == seen);
      if (i % 16 == 0) MUST(!pthread_rwlock_unlock(&lock));
    }
    MUST(!pthread_rwlock_unlock(&lock));
  }
  return (void *)written;
}

static long all(void *(*f)(void *)) {
  pthread_t thread[64];
  long sum = 0;
  void *result;
  for (long i = 0; i < threads; i++) MUST(!pthread_create(&thread[i], NULL, f, (void *)i));
  for (long i = 0; i < threads; i++) {
    MUST(!pthread_join(thread[i], &result));
    sum += (long)result;
  }
  return sum;
}

int main(int count, char **arguments) {
  MUST(count == 3);
  rounds = atol(arguments[1]);
  threads = atoi(arguments[2]);
  MUST(threads <= 64);
  pthread_barrier_init(&barrier, NULL, threads);
  MUST(all(mixes) == numbers[0] && numbers[0] > 0);
  all(ends);
  puts("ok");
  return 0;
}
