/* edges leaks: makes many locks whose readers meet, and frees their memory without destroying them.
   edges many: takes more read locks at a time than the library can count in one word.
   edges alone: the same before there was a thread.
   edges errors FILE: takes locks, and makes a file of its own its descriptor 2.
   edges filter: puts up a filter of system calls that refuses membarrier, once readers have met.
   edges allocates: allocates in four threads.
   edges maps: asks a library for its list of mappings in four threads, which map and unmap, too.
   edges stack: takes locks in a thread with the smallest stack that there may be.
   edges handler: takes locks in handlers that interrupt the allocator, on a stack of 8 KiB.
   edges cancel: takes locks in a thread that is to end at its next cancellation point.
   edges exec: runs itself again while it has locks. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
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

/* Of a library that is preloaded. */
long mappings(void) __attribute__((weak));

static void *maps(void *of) {
  for (int i = 0; i < 20000; i++) {
    mappings();
    if (i % 2000 == 0) {
      void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      MUST(page != MAP_FAILED && !munmap(page, 4096));
    }
  }
  return of;
}

static pthread_rwlock_t of_all = PTHREAD_RWLOCK_INITIALIZER;

static void *takes(void *of) {
  for (int i = 0; i < 100; i++) {
    meet(&of_all);
    MUST(!pthread_rwlock_wrlock(&of_all));
    MUST(!pthread_rwlock_unlock(&of_all));
  }
  return of;
}

/* Behind a page that may not be touched. */
static void small_stack(void) {
  size_t page = sysconf(_SC_PAGESIZE), size = PTHREAD_STACK_MIN;
  char *stack = mmap(NULL, page + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  MUST(stack != MAP_FAILED && !mprotect(stack, page, PROT_NONE));
  pthread_attr_t attributes;
  MUST(!pthread_attr_init(&attributes));
  MUST(!pthread_attr_setstack(&attributes, stack + page, size));
  pthread_t small, other;
  MUST(!pthread_create(&small, &attributes, takes, NULL));
  MUST(!pthread_create(&other, NULL, takes, NULL));
  MUST(!pthread_join(small, NULL) && !pthread_join(other, NULL));
}

static volatile sig_atomic_t handled;

static void handler(int signal) {
  (void)signal;
  for (int i = 0; i < 3; i++) {
    MUST(!pthread_rwlock_rdlock(&of_all));
    MUST(!pthread_rwlock_unlock(&of_all));
  }
  handled++;
}

static void *waits(void *of) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  while (handled < 300) usleep(1000);
  return of;
}

/* The first handlers run before there is a second thread, and later ones beside it. */
static void handlers(void) {
  static struct { char below[16384], stack[8192]; } memory;
  memset(memory.below, 7, sizeof memory.below);
  stack_t stack = { .ss_sp = memory.stack, .ss_size = sizeof memory.stack };
  MUST(!sigaltstack(&stack, NULL));
  struct sigaction action = { .sa_handler = handler, .sa_flags = SA_ONSTACK };
  MUST(!sigaction(SIGPROF, &action, NULL));
  struct itimerval often = { { 0, 200 }, { 0, 200 } };
  MUST(!setitimer(ITIMER_PROF, &often, NULL));
  pthread_t thread;
  void *objects[64] = { NULL };
  for (unsigned i = 0, random = 1; handled < 300; i++) {
    random = random * 1103515245 + 12345;
    free(objects[i % 64]);
    objects[i % 64] = malloc(2000 + (random >> 16) % 60000);
    if (i == 100000) MUST(!pthread_create(&thread, NULL, waits, NULL));
    if (handled >= 290 && i < 100000) handled = 0;
  }
  often = (struct itimerval){ { 0, 0 }, { 0, 0 } };
  MUST(!setitimer(ITIMER_PROF, &often, NULL));
  MUST(!pthread_join(thread, NULL));
  for (size_t i = 0; i < sizeof memory.below; i++) MUST(memory.below[i] == 7);
}

static void in_four_threads(void *(*does)(void *)) {
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) MUST(!pthread_create(&threads[i], NULL, does, NULL));
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
  struct timespec soon;
  clock_gettime(CLOCK_REALTIME, &soon);
  soon.tv_sec += 1;
  MUST(pthread_rwlock_trywrlock(&lock) == EBUSY);
  if (result) {
    MUST(pthread_rwlock_tryrdlock(&lock) == EAGAIN);
    MUST(pthread_rwlock_timedrdlock(&lock, &soon) == EAGAIN);
  }
  MUST(pthread_rwlock_timedwrlock(&lock, &soon) == ETIMEDOUT);
  while (taken--) MUST(!pthread_rwlock_unlock(&lock));
  MUST(!pthread_rwlock_trywrlock(&lock));
}

static void errors(const char *path) {
  static pthread_rwlock_t lock;
  meet(&lock);
  MUST(!close(2) && open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644) == 2);
  MUST(write(2, "data\n", 5) == 5);
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
  for (int i = 0; i < 3; i++) {
    meet(&lock);
    int result = pthread_rwlock_trywrlock(&lock);
    MUST(result == 0 || result == EBUSY);
    if (!result) MUST(!pthread_rwlock_unlock(&lock));
  }
  MUST(!pthread_rwlock_wrlock(&lock));
  MUST(!pthread_rwlock_unlock(&lock));
}

int main(int count, char **arguments) {
  pthread_t thread;
  MUST(count == 2 || count == 3);
  const char *which = arguments[1];
  if (!strcmp(which, "stack") || !strcmp(which, "handler") || !strcmp(which, "alone")) {
    /* These create their own first thread, or none. */
    if (*which == 's') small_stack();
    else if (*which == 'h') handlers();
    else many();
    puts("ok");
    return 0;
  }
  MUST(!pthread_create(&thread, NULL, nothing, NULL));
  MUST(!pthread_join(thread, NULL));
  if (!strcmp(which, "leaks")) leaks();
  else if (!strcmp(which, "many")) many();
  else if (!strcmp(which, "filter")) filter();
  else if (!strcmp(which, "errors")) errors(arguments[2]);
  else if (!strcmp(which, "allocates")) in_four_threads(allocates);
  else if (!strcmp(which, "maps")) in_four_threads(maps);
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
