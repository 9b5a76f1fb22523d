/* A library whose destructor has a thread load another one, STAYS, and waits until the constructor of
   that one runs. With -DCONSTRUCTOR: that other library, whose constructor never ends. */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MUST(what)                                                                                 \
  do {                                                                                             \
    if (!(what)) { fprintf(stderr, "failed: %s, line %d\n", #what, __LINE__); abort(); }           \
  } while (0)

void is_in_constructor(void);

#ifdef CONSTRUCTOR
__attribute__((constructor)) static void begin(void) {
  is_in_constructor();
  for (;;) pause();
}
#else
static sem_t in_constructor;

void is_in_constructor(void) { MUST(!sem_post(&in_constructor)); }

static void *loads(void *of) {
  MUST(dlopen(STAYS, RTLD_NOW));
  return of;
}

__attribute__((destructor)) static void end(void) {
  pthread_t thread;
  MUST(!sem_init(&in_constructor, 0, 0) && !pthread_create(&thread, NULL, loads, NULL));
  MUST(!sem_wait(&in_constructor));
}
#endif
