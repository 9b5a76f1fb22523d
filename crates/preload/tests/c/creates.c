/* Creates the first thread of a process under conditions in which glibc can do it.
   creates stack: on a stack of 16 KiB that is not a thread's.
   creates memory: with no memory but the new thread's own stack.
   creates later: and has no memory from then on.
   creates threads: as a user who may have one thread more. It needs root.
   creates two: as a user who may have two threads more, which it has at the same time.
   creates none: as a user who may have no thread more.
   creates more: at that limit, beside threads that the library has not created and cannot know.
   creates files: with no descriptor for a file.
   creates signals: and gets signals all the time, whose handler finds itself on the thread's stack.
   creates exit: and ends the process on a thread with little stack.
   creates busy: and ends the process while threads use many locks.
   creates end: and ends after its standard input, with no descriptor for a file.
   creates file: and may not write to files.
   creates forks: and forks while that thread looks at the list of libraries. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define MUST(what)                                                                                 \
  do {                                                                                             \
    if (!(what)) { fprintf(stderr, "failed: %s, line %d\n", #what, __LINE__); abort(); }           \
  } while (0)

static void *nothing(void *of) { return of; }

static char memory[64 << 10] __attribute__((aligned(4096)));

static void create(void) {
  pthread_t thread;
  pthread_attr_t attributes;
  MUST(!pthread_attr_init(&attributes));
  MUST(!pthread_attr_setstack(&attributes, memory, sizeof memory));
  MUST(!pthread_create(&thread, &attributes, nothing, NULL));
  MUST(!pthread_join(thread, NULL));
}

static pthread_barrier_t together;

static void *wait_for_other(void *of) {
  pthread_barrier_wait(&together);
  return of;
}

static void create_two(void) {
  pthread_t threads[2];
  MUST(!pthread_barrier_init(&together, NULL, 2));
  for (int i = 0; i < 2; i++) MUST(!pthread_create(&threads[i], NULL, wait_for_other, NULL));
  for (int i = 0; i < 2; i++) MUST(!pthread_join(threads[i], NULL));
}

static int sleep_on(void *of) {
  while (!of) pause();
  return 0;
}

static pthread_t main_thread;
static char *stack_begin, *stack_end;

static void look_at_stack(int signal) {
  char here = (char)signal;
  MUST(&here >= stack_begin && &here < stack_end);
}

static int send_signals(void *of) {
  while (!of) {
    pthread_kill(main_thread, SIGUSR1);
    usleep(20);
  }
  return 0;
}

static void get_signals(void) {
  pthread_attr_t attributes;
  size_t size;
  void *begin;
  thrd_t sender;
  main_thread = pthread_self();
  MUST(!pthread_getattr_np(main_thread, &attributes));
  MUST(!pthread_attr_getstack(&attributes, &begin, &size));
  stack_begin = begin;
  stack_end = stack_begin + size;
  struct sigaction action = {.sa_handler = look_at_stack, .sa_flags = SA_RESTART};
  MUST(!sigaction(SIGUSR1, &action, NULL));
  MUST(thrd_create(&sender, send_signals, NULL) == thrd_success);
}

/* Reads in reads, and writes, with more locks than the statistics print. */
__attribute__((noinline)) void use(void) {
  static pthread_rwlock_t locks[12];
  for (int i = 0; i < 12; i++) {
    for (int j = 0; j < 400; j++) MUST(!pthread_rwlock_rdlock(&locks[i]));
    for (int j = 0; j < 400; j++) MUST(!pthread_rwlock_unlock(&locks[i]));
    MUST(!pthread_rwlock_wrlock(&locks[i]));
    MUST(!pthread_rwlock_unlock(&locks[i]));
  }
}

static void *use_and_exit(void *of) {
  use();
  if (!of) exit(0);
  return of;
}

static void *use_many(void *of) {
  static pthread_rwlock_t locks[4000];
  for (size_t i = (size_t)of;; i = (i * 5 + 1) % 4000) {
    MUST(!pthread_rwlock_rdlock(&locks[i]));
    MUST(!pthread_rwlock_unlock(&locks[i]));
  }
}

static void limit(int of, rlim_t to) {
  struct rlimit limit = {to, to};
  MUST(!setrlimit(of, &limit));
}

/* A user who has no other process. */
static void limit_threads(rlim_t to) {
  if (!geteuid()) MUST(!setuid(1000000 + getpid()));
  limit(RLIMIT_NPROC, to);
}

static void limit_memory(void) {
  long pages;
  FILE *sizes = fopen("/proc/self/statm", "r");
  MUST(sizes && fscanf(sizes, "%ld", &pages) == 1 && !fclose(sizes));
  limit(RLIMIT_AS, pages * sysconf(_SC_PAGESIZE));
}

static void on_small_stack(void) {
  static ucontext_t here, there;
  size_t page = sysconf(_SC_PAGESIZE), size = PTHREAD_STACK_MIN;
  char *stack = mmap(NULL, page + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  MUST(stack != MAP_FAILED && !mprotect(stack, page, PROT_NONE) && !getcontext(&there));
  there.uc_stack.ss_sp = stack + page;
  there.uc_stack.ss_size = size;
  there.uc_link = &here;
  makecontext(&there, create, 0);
  MUST(!swapcontext(&here, &there));
}

static pthread_barrier_t looking, looked;

static int look(struct dl_phdr_info *of, size_t size, void *at) {
  (void)of, (void)size, (void)at;
  pthread_barrier_wait(&looking);
  pthread_barrier_wait(&looked);
  return 1;
}

static void *looks(void *of) {
  MUST(dl_iterate_phdr(look, NULL) == 1);
  return of;
}

static void forks(void) {
  int status;
  pthread_t thread;
  MUST(!pthread_barrier_init(&looking, NULL, 2) && !pthread_barrier_init(&looked, NULL, 2));
  MUST(!pthread_create(&thread, NULL, looks, NULL));
  pthread_barrier_wait(&looking);
  pid_t child = fork();
  MUST(child >= 0);
  if (!child) {
    use();
    exit(0);
  }
  MUST(waitpid(child, &status, 0) == child && !status);
  pthread_barrier_wait(&looked);
  MUST(!pthread_join(thread, NULL));
}

int main(int count, char **arguments) {
  MUST(count == 2);
  const char *which = arguments[1];
  if (!strcmp(which, "stack")) on_small_stack();
  else if (!strcmp(which, "memory")) {
    limit_memory();
    create();
  } else if (!strcmp(which, "later")) {
    create();
    limit_memory();
  } else if (!strcmp(which, "threads")) {
    limit_threads(2);
    create();
  } else if (!strcmp(which, "two")) {
    limit_threads(3);
    create_two();
  } else if (!strcmp(which, "none")) {
    pthread_t thread;
    limit_threads(1);
    MUST(pthread_create(&thread, NULL, nothing, NULL) == EAGAIN);
  } else if (!strcmp(which, "more")) {
    pthread_t thread;
    thrd_t others[3];
    create();
    for (int i = 0; i < 3; i++) MUST(thrd_create(&others[i], sleep_on, NULL) == thrd_success);
    limit_threads(1);
    struct timespec begin, end;
    MUST(!clock_gettime(CLOCK_MONOTONIC, &begin));
    MUST(pthread_create(&thread, NULL, nothing, NULL) == EAGAIN);
    MUST(!clock_gettime(CLOCK_MONOTONIC, &end));
    MUST(end.tv_sec - begin.tv_sec < 5);
  } else if (!strcmp(which, "files")) {
    limit(RLIMIT_NOFILE, 0);
    create();
  } else if (!strcmp(which, "signals")) {
    get_signals();
    create();
  } else if (!strcmp(which, "exit")) {
    pthread_t thread;
    pthread_attr_t attributes;
    MUST(!pthread_attr_init(&attributes));
    MUST(!pthread_attr_setstack(&attributes, memory, PTHREAD_STACK_MIN));
    MUST(!pthread_create(&thread, &attributes, use_and_exit, NULL));
    pthread_join(thread, NULL);
  } else if (!strcmp(which, "busy")) {
    pthread_t thread;
    for (size_t i = 0; i < 3; i++) MUST(!pthread_create(&thread, NULL, use_many, (void *)i));
    usleep(50000);
    return 0;
  } else if (!strcmp(which, "end")) {
    char byte;
    create();
    limit(RLIMIT_NOFILE, 3);
    use();
    MUST(puts("ok") >= 0 && !fflush(stdout));
    while (read(0, &byte, 1) > 0) continue;
    return 0;
  } else if (!strcmp(which, "file")) {
    create();
    limit(RLIMIT_FSIZE, 0);
    use();
    return 0;
  } else if (!strcmp(which, "forks")) {
    forks();
  } else MUST(0);
  use();
  puts("ok");
}
