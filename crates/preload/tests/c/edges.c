/* edges leaks: makes many locks whose readers meet, and frees their memory without destroying them.
   edges many: takes more read locks at a time than the library can count.
   edges filter: puts up a filter of system calls that refuses membarrier, once readers have met.
   edges allocates: allocates in four threads.
   edges cancel: takes locks in a thread that is to end at its next cancellation point.
   edges exec: runs itself again while it has locks. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MUST(what)                                                                                 \
  do {                                                                                             \
    if (!(what)) { fprintf(stderr, "failed: %s, line %d\n", #what, __LINE__); abort(); }           \
  } while (0)

static void *nothing(void *of) { return of; }

/* Reads in a read, more often than pays. */
static void meet(pthread_rwlock_t *lock) {
  for (int i = 0; i < 400; i++) MUST(!pthread_rwlock_rdlock(lock));
  for (int i = 0; i < 400; i++) MUST(!pthread_rwlock_unlock(lock));
}

static void leaks(void) {
  for (int i = 0; i < 40000; i++) {
    pthread_rwlock_t *lock = malloc(sizeof *lock);
    MUST(!pthread_rwlock_init(lock, NULL));
    meet(lock);
    if (i % 100 == 0) {
      MUST(!pthread_rwlock_wrlock(lock));
      MUST(!pthread_rwlock_unlock(lock));
    }
    /* Every second one has an address of its own. */
    if (i % 2) free(lock);
  }
}

static void *allocates(void *of) {
  for (int i = 0; i < 20000; i++) {
    char *volatile taken = malloc(32);
    MUST(taken);
    free(taken);
  }
  return of;
}

static void allocate(void) {
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) MUST(!pthread_create(&threads[i], NULL, allocates, NULL));
  for (int i = 0; i < 4; i++) MUST(!pthread_join(threads[i], NULL));
}

static volatile int has_locked;

static void *is_cancelled(void *of) {
  static pthread_rwlock_t lock;
  MUST(!pthread_cancel(pthread_self()));
  for (int i = 0; i < 3000; i++) {
    MUST(!pthread_rwlock_rdlock(&lock));
    MUST(!pthread_rwlock_rdlock(&lock));
    MUST(!pthread_rwlock_unlock(&lock));
    MUST(!pthread_rwlock_unlock(&lock));
  }
  MUST(!pthread_rwlock_wrlock(&lock));
  MUST(!pthread_rwlock_unlock(&lock));
  has_locked = 1;
  pthread_testcancel();
  return of;
}

static void cancel(void) {
  pthread_t thread;
  void *result;
  MUST(!pthread_create(&thread, NULL, is_cancelled, NULL));
  MUST(!pthread_join(thread, &result));
  MUST(result == PTHREAD_CANCELED && has_locked);
}

static void many(void) {
  static pthread_rwlock_t lock;
  long taken = 0;
  int result = 0;
  while (taken < 6000000 && !(result = pthread_rwlock_rdlock(&lock))) taken++;
  MUST(result == 0 || result == EAGAIN);
  MUST(taken > 4000000);
  MUST(pthread_rwlock_trywrlock(&lock) == EBUSY);
  while (taken--) MUST(!pthread_rwlock_unlock(&lock));
  MUST(!pthread_rwlock_trywrlock(&lock));
}

static void filter(void) {
  static pthread_rwlock_t lock;
  for (int i = 0; i < 4; i++) meet(&lock);
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  MUST(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  MUST(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
  MUST(!pthread_rwlock_rdlock(&lock));
  MUST(!pthread_rwlock_unlock(&lock));
  MUST(!pthread_rwlock_wrlock(&lock));
  MUST(!pthread_rwlock_unlock(&lock));
}

int main(int count, char **arguments) {
  pthread_t thread;
  MUST(count == 2);
  MUST(!pthread_create(&thread, NULL, nothing, NULL));
  MUST(!pthread_join(thread, NULL));
  const char *which = arguments[1];
  if (!strcmp(which, "leaks")) leaks();
  else if (!strcmp(which, "many")) many();
  else if (!strcmp(which, "filter")) filter();
  else if (!strcmp(which, "allocates")) allocate();
  else if (!strcmp(which, "cancel")) cancel();
  else if (!strcmp(which, "exec")) {
    static pthread_rwlock_t locks[2];
    meet(&locks[0]);
    MUST(!pthread_rwlock_rdlock(&locks[0]));
    MUST(!pthread_rwlock_wrlock(&locks[1]));
    execl("/proc/self/exe", arguments[0], "leaks", (char *)NULL);
    MUST(0);
  } else MUST(0);
  puts("ok");
}
