/* A library that wraps pthread_create, as tools do that follow threads: threads begin with a function
   of its own. Threads of libcoreline_pthread.so end 50 ms after their work, as on a busy machine.
   With -DEARLY, its constructor creates a thread, as a user who may have one more.
   With -DMAIN: a program that wraps it, in which another thread forks while the library creates its
   first thread. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

#define MUST(what)                                                                                 \
  do {                                                                                             \
    if (!(what)) { fprintf(stderr, "failed: %s, line %d\n", #what, __LINE__); abort(); }           \
  } while (0)

typedef void *start_of(void *);

struct work {
  start_of *start;
  void *argument;
  int is_own;
};

static void *runs(void *of) {
  struct work work = *(struct work *)of;
  free(of);
  void *result = work.start(work.argument);
  if (work.is_own) usleep(50000);
  return result;
}

static volatile int own_threads;

void own_thread(void) __attribute__((weak));

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, start_of *start,
                   void *argument) {
  static int (*next)(pthread_t *, const pthread_attr_t *, start_of *, void *);
  if (!next) *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
  Dl_info of;
  struct work *work = malloc(sizeof *work);
  MUST(next && work && dladdr((void *)(size_t)start, &of));
  *work = (struct work){start, argument, !!strstr(of.dli_fname, "libcoreline_pthread")};
  if (work->is_own) {
    own_threads++;
    if (own_thread) own_thread();
  }
  int result = next(thread, attributes, runs, work);
  if (result) free(work);
  return result;
}

#if defined(EARLY) || defined(MAIN)
static void *nothing(void *of) { return of; }

static void create(void) {
  pthread_t thread;
  MUST(!pthread_create(&thread, NULL, nothing, NULL) && !pthread_join(thread, NULL));
}
#endif

#ifdef EARLY
__attribute__((constructor)) static void begin(void) {
  struct rlimit limit = {2, 2};
  if (!geteuid()) MUST(!setuid(1000000 + getpid()));
  MUST(!setrlimit(RLIMIT_NPROC, &limit));
  create();
}
#endif

#ifdef MAIN
static sem_t asked, done;
static int status = -1;

static int forks(void *of) {
  MUST(!sem_wait(&asked));
  own_threads = 0;
  pid_t child = fork();
  MUST(child >= 0);
  if (!child) {
    /* The thread that made what all locks share does not exist here. */
    create();
    MUST(own_threads > 0);
    _exit(0);
  }
  MUST(waitpid(child, &status, 0) == child && !sem_post(&done));
  return !!of;
}

/* The first of them, in the parent. */
void own_thread(void) {
  static int is_asked;
  if (is_asked++) return;
  MUST(!sem_post(&asked) && !sem_wait(&done));
}

int main(void) {
  thrd_t thread;
  MUST(!sem_init(&asked, 0, 0) && !sem_init(&done, 0, 0));
  MUST(thrd_create(&thread, forks, NULL) == thrd_success);
  create();
  MUST(thrd_join(thread, NULL) == thrd_success && !status);
  puts("ok");
}
#endif
