/* Calls each function for readers-writer locks in each state of a lock, and prints the results, one
   a line. The test runs it with the preload and without, and compares the lines. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *name(int error) {
  switch (error) {
  case 0: return "0";
  case EBUSY: return "EBUSY";
  case ETIMEDOUT: return "ETIMEDOUT";
  case EINVAL: return "EINVAL";
  case EDEADLK: return "EDEADLK";
  case EAGAIN: return "EAGAIN";
  default: return "another error";
  }
}

static const char *now_in = "";

/* Prints a call and its result, and whether it changed errno. */
#define SHOW(call)                                                                                 \
  do {                                                                                             \
    errno = 77;                                                                                    \
    int shown = (call);                                                                           \
    printf("%s: %s: %s%s\n", now_in, #call, name(shown), errno == 77 ? "" : ", errno changed");   \
  } while (0)
#define MUST(call)                                                                                 \
  do {                                                                                             \
    int shown = (call);                                                                           \
    if (shown) { printf("%s: %s: %s, line %d\n", now_in, #call, name(shown), __LINE__); exit(1); } \
  } while (0)

static struct timespec after(clockid_t clock, long ms) {
  struct timespec at;
  clock_gettime(clock, &at);
  long long nanos = at.tv_nsec + ms * 1000000LL;
  at.tv_sec += nanos / 1000000000;
  at.tv_nsec = nanos % 1000000000;
  if (at.tv_nsec < 0) { at.tv_nsec += 1000000000; at.tv_sec--; }
  return at;
}

static int has_passed(clockid_t clock, struct timespec at) {
  struct timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec > at.tv_sec || (now.tv_sec == at.tv_sec && now.tv_nsec >= at.tv_nsec);
}

/* Calls f(lock) in another thread. */
static void elsewhere(void *(*f)(void *), void *lock) {
  pthread_t thread;
  MUST(pthread_create(&thread, NULL, f, lock));
  MUST(pthread_join(thread, NULL));
}

static const clockid_t CLOCKS[] = {CLOCK_REALTIME, CLOCK_MONOTONIC};

/* Times that are none, and clocks that are not for this. */
static void invalid(pthread_rwlock_t *l) {
  struct timespec low = {1, -1}, high = {1, 1000000000}, good = {1, 999999999};
  SHOW(pthread_rwlock_timedrdlock(l, &low));
  SHOW(pthread_rwlock_timedrdlock(l, &high));
  SHOW(pthread_rwlock_timedwrlock(l, &low));
  SHOW(pthread_rwlock_timedwrlock(l, &high));
  SHOW(pthread_rwlock_clockrdlock(l, CLOCK_MONOTONIC, &high));
  SHOW(pthread_rwlock_clockwrlock(l, CLOCK_MONOTONIC, &low));
  SHOW(pthread_rwlock_clockrdlock(l, CLOCK_PROCESS_CPUTIME_ID, &good));
  SHOW(pthread_rwlock_clockwrlock(l, CLOCK_BOOTTIME, &good));
  SHOW(pthread_rwlock_clockwrlock(l, 1000, &good));
}

static void *tries(void *of) {
  pthread_rwlock_t *l = of;
  int result;
  SHOW(result = pthread_rwlock_tryrdlock(l));
  if (!result) MUST(pthread_rwlock_unlock(l));
  SHOW(result = pthread_rwlock_trywrlock(l));
  if (!result) MUST(pthread_rwlock_unlock(l));
  return NULL;
}

/* Waits that end at a time. Those that must wait are asked to. */
static void *waits(void *of) {
  pthread_rwlock_t *l = of;
  for (int i = 0; i < 2; i++) {
    clockid_t clock = CLOCKS[i];
    struct timespec past = {0, 0}, before = {-5, 1}, soon = after(clock, 20);
    int result;
    SHOW(result = pthread_rwlock_clockrdlock(l, clock, &past));
    if (!result) MUST(pthread_rwlock_unlock(l));
    SHOW(result = pthread_rwlock_clockwrlock(l, clock, &before));
    if (!result) MUST(pthread_rwlock_unlock(l));
    SHOW(result = pthread_rwlock_clockwrlock(l, clock, &soon));
    if (!result) MUST(pthread_rwlock_unlock(l));
    else printf("%s: it waited: %d\n", now_in, has_passed(clock, soon));
    soon = after(clock, 20);
    SHOW(result = pthread_rwlock_clockrdlock(l, clock, &soon));
    if (!result) MUST(pthread_rwlock_unlock(l));
    else printf("%s: it waited: %d\n", now_in, has_passed(clock, soon));
  }
  struct timespec soon = after(CLOCK_REALTIME, 20);
  int result;
  SHOW(result = pthread_rwlock_timedrdlock(l, &soon));
  if (!result) MUST(pthread_rwlock_unlock(l));
  soon = after(CLOCK_REALTIME, 20);
  SHOW(result = pthread_rwlock_timedwrlock(l, &soon));
  if (!result) MUST(pthread_rwlock_unlock(l));
  invalid(l);
  return NULL;
}

static void *writes(void *l) {
  MUST(pthread_rwlock_wrlock(l));
  MUST(pthread_rwlock_unlock(l));
  return NULL;
}

static void *reads(void *l) {
  MUST(pthread_rwlock_rdlock(l));
  MUST(pthread_rwlock_unlock(l));
  return NULL;
}

static void *reads_and_ends(void *l) {
  MUST(pthread_rwlock_rdlock(l));
  return NULL;
}

static void *unlocks(void *l) {
  MUST(pthread_rwlock_unlock(l));
  return NULL;
}

static void pause_ms(long ms) {
  struct timespec span = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&span, NULL);
}

/* Everything about one lock, which is free before and after. */
static void all(pthread_rwlock_t *l) {
  struct timespec soon;
  invalid(l);
  waits(l);
  elsewhere(tries, l);

  SHOW(pthread_rwlock_rdlock(l));
  SHOW(pthread_rwlock_rdlock(l));
  SHOW(pthread_rwlock_tryrdlock(l));
  SHOW(pthread_rwlock_trywrlock(l));
  soon = after(CLOCK_REALTIME, 10);
  SHOW(pthread_rwlock_timedwrlock(l, &soon));
  elsewhere(tries, l);
  elsewhere(waits, l);
  for (int i = 0; i < 3; i++) SHOW(pthread_rwlock_unlock(l));

  SHOW(pthread_rwlock_wrlock(l));
  SHOW(pthread_rwlock_tryrdlock(l));
  SHOW(pthread_rwlock_trywrlock(l));
  SHOW(pthread_rwlock_rdlock(l));
  SHOW(pthread_rwlock_wrlock(l));
  soon = after(CLOCK_MONOTONIC, 1000);
  SHOW(pthread_rwlock_clockrdlock(l, CLOCK_MONOTONIC, &soon));
  SHOW(pthread_rwlock_clockwrlock(l, CLOCK_MONOTONIC, &soon));
  SHOW(pthread_rwlock_timedrdlock(l, &soon));
  SHOW(pthread_rwlock_timedwrlock(l, &soon));
  elsewhere(tries, l);
  elsewhere(waits, l);
  SHOW(pthread_rwlock_unlock(l));
  elsewhere(tries, l);

  /* A writer and readers that wait get it. */
  pthread_t threads[4];
  MUST(pthread_rwlock_wrlock(l));
  for (int i = 0; i < 4; i++) MUST(pthread_create(&threads[i], NULL, i ? reads : writes, l));
  pause_ms(20);
  SHOW(pthread_rwlock_unlock(l));
  for (int i = 0; i < 4; i++) MUST(pthread_join(threads[i], NULL));

  /* Another thread may free a read lock, and a thread may end with one. */
  MUST(pthread_rwlock_rdlock(l));
  elsewhere(unlocks, l);
  SHOW(pthread_rwlock_trywrlock(l));
  SHOW(pthread_rwlock_unlock(l));
  elsewhere(reads_and_ends, l);
  SHOW(pthread_rwlock_trywrlock(l));
  SHOW(pthread_rwlock_tryrdlock(l));
  SHOW(pthread_rwlock_unlock(l));
  SHOW(pthread_rwlock_unlock(l));
  SHOW(pthread_rwlock_trywrlock(l));
  SHOW(pthread_rwlock_unlock(l));
}

/* A thread reads again while a writer waits. */
static void nested(pthread_rwlock_t *l) {
  pthread_t thread;
  SHOW(pthread_rwlock_rdlock(l));
  MUST(pthread_create(&thread, NULL, writes, l));
  for (int i = 0; i < 5; i++) {
    pause_ms(10);
    SHOW(pthread_rwlock_tryrdlock(l));
    SHOW(pthread_rwlock_rdlock(l));
    SHOW(pthread_rwlock_unlock(l));
    SHOW(pthread_rwlock_unlock(l));
  }
  SHOW(pthread_rwlock_unlock(l));
  MUST(pthread_join(thread, NULL));
}

static void *reads_often(void *l) {
  for (int i = 0; i < 5000; i++) reads(l);
  return NULL;
}

/* Many reads, each of which meets another one. */
static void meet(pthread_rwlock_t *l) {
  MUST(pthread_rwlock_rdlock(l));
  elsewhere(reads_often, l);
  MUST(pthread_rwlock_unlock(l));
}

static pthread_rwlock_t *of_handler;
static volatile int in_handler = -1;
static void handler(int signal) {
  (void)signal;
  in_handler = pthread_rwlock_rdlock(of_handler) | pthread_rwlock_unlock(of_handler);
}

static void signals(pthread_rwlock_t *l) {
  of_handler = l;
  signal(SIGUSR1, handler);
  MUST(pthread_rwlock_rdlock(l));
  raise(SIGUSR1);
  MUST(pthread_rwlock_unlock(l));
  printf("%s: a handler reads in a read: %s\n", now_in, name(in_handler));
}

static void *holds(void *of) {
  pthread_rwlock_t **locks = of;
  MUST(pthread_rwlock_wrlock(locks[0]));
  MUST(pthread_rwlock_rdlock(locks[1]));
  return NULL;
}

/* A child that is forked while another thread has locks. */
static void forks(pthread_rwlock_t *written, pthread_rwlock_t *read, pthread_rwlock_t *free) {
  pthread_rwlock_t *locks[] = {written, read};
  elsewhere(holds, locks);
  MUST(pthread_rwlock_rdlock(free));
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    now_in = "in the child";
    struct timespec soon = after(CLOCK_REALTIME, 10);
    SHOW(pthread_rwlock_tryrdlock(written));
    SHOW(pthread_rwlock_timedwrlock(written, &soon));
    SHOW(pthread_rwlock_rdlock(read));
    SHOW(pthread_rwlock_trywrlock(read));
    SHOW(pthread_rwlock_unlock(read));
    SHOW(pthread_rwlock_unlock(free));
    elsewhere(reads_often, free);
    SHOW(pthread_rwlock_wrlock(free));
    elsewhere(tries, free);
    SHOW(pthread_rwlock_unlock(free));
    fflush(stdout);
    _exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  printf("%s: the child ended with %d\n", now_in, status);
  MUST(pthread_rwlock_unlock(free));
  SHOW(pthread_rwlock_trywrlock(free));
  SHOW(pthread_rwlock_unlock(free));
}

/* A lock between processes. */
static void shared(void) {
  now_in = "shared";
  pthread_rwlock_t *l =
      mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pthread_rwlockattr_t attributes;
  MUST(pthread_rwlockattr_init(&attributes));
  MUST(pthread_rwlockattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
  memset(l, 0xa5, sizeof *l);
  SHOW(pthread_rwlock_init(l, &attributes));
  MUST(pthread_rwlock_rdlock(l));
  elsewhere(reads_often, l);
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    /* Waits for the parent, which waits for this wait, and wakes it up. */
    MUST(pthread_rwlock_wrlock(l));
    MUST(pthread_rwlock_unlock(l));
    MUST(pthread_rwlock_wrlock(l));
    ((volatile char *)l)[1000] = 1;
    pause_ms(100);
    MUST(pthread_rwlock_unlock(l));
    _exit(0);
  }
  pause_ms(50);
  MUST(pthread_rwlock_unlock(l));
  while (!((volatile char *)l)[1000]) pause_ms(1);
  SHOW(pthread_rwlock_trywrlock(l));
  SHOW(pthread_rwlock_wrlock(l));
  SHOW(pthread_rwlock_unlock(l));
  int status;
  waitpid(child, &status, 0);
  printf("shared: the child ended with %d\n", status);
  all(l);
  SHOW(pthread_rwlock_destroy(l));
}

static pthread_rwlock_t at_first = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t for_writers = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static pthread_rwlock_t zeros;

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  pthread_rwlock_t l;
  /* Before there is a second thread. */
  now_in = "alone";
  memset(&l, 0xa5, sizeof l);
  SHOW(pthread_rwlock_init(&l, NULL));
  SHOW(pthread_rwlock_rdlock(&l));
  SHOW(pthread_rwlock_trywrlock(&l));
  SHOW(pthread_rwlock_unlock(&l));
  SHOW(pthread_rwlock_wrlock(&l));
  SHOW(pthread_rwlock_rdlock(&l));
  SHOW(pthread_rwlock_wrlock(&l));
  SHOW(pthread_rwlock_unlock(&l));
  for (int i = 0; i < 1000; i++) MUST(pthread_rwlock_rdlock(&l));
  for (int i = 0; i < 1000; i++) MUST(pthread_rwlock_unlock(&l));
  SHOW(pthread_rwlock_trywrlock(&l));
  SHOW(pthread_rwlock_unlock(&l));
  invalid(&l);

  now_in = "initialised";
  all(&l);
  nested(&l);
  signals(&l);
  now_in = "initialised, many readers met";
  meet(&l);
  all(&l);
  meet(&l);
  nested(&l);
  meet(&l);
  signals(&l);
  for (int i = 0; i < 3; i++) {
    now_in = "destroyed, and used again";
    meet(&l);
    SHOW(pthread_rwlock_destroy(&l));
    memset(&l, 0xa5, sizeof l);
    SHOW(pthread_rwlock_init(&l, NULL));
    meet(&l);
    SHOW(pthread_rwlock_wrlock(&l));
    SHOW(pthread_rwlock_unlock(&l));
  }
  SHOW(pthread_rwlock_destroy(&l));

  for (int kind = 0; kind <= 2; kind++) {
    static const char *kinds[] = {"prefer readers", "prefer writers", "no nested reads"};
    now_in = kinds[kind];
    pthread_rwlockattr_t attributes;
    MUST(pthread_rwlockattr_init(&attributes));
    MUST(pthread_rwlockattr_setkind_np(&attributes, kind));
    memset(&l, 0xa5, sizeof l);
    SHOW(pthread_rwlock_init(&l, &attributes));
    meet(&l);
    all(&l);
    if (kind < 2) nested(&l);
    SHOW(pthread_rwlock_destroy(&l));
  }
  now_in = "static";
  all(&at_first);
  meet(&at_first);
  nested(&at_first);
  now_in = "static, no nested reads";
  meet(&for_writers);
  all(&for_writers);
  now_in = "zeros";
  all(&zeros);
  SHOW(pthread_rwlock_destroy(&zeros));
  now_in = "a child";
  static pthread_rwlock_t locks[6];
  forks(&locks[0], &locks[1], &locks[2]);
  for (int i = 3; i < 6; i++) meet(&locks[i]);
  forks(&locks[3], &locks[4], &locks[5]);
  shared();
  puts("the end");
  return 0;
}
