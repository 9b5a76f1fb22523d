/* A library whose locks are used by its constructor, by its callers and by its destructor. With
   -DMAIN: a program that is linked with it, or that opens and closes it: users [FILE]. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define MUST(what)                                                                                 \
  do {                                                                                             \
    if (!(what)) { fprintf(stderr, "failed: %s, line %d\n", #what, __LINE__); abort(); }           \
  } while (0)

#ifndef MAIN
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

static void *reads(void *of) {
  for (int i = 0; i < 2000; i++) {
    MUST(!pthread_rwlock_rdlock(of));
    MUST(!pthread_rwlock_unlock(of));
  }
  return NULL;
}

void use_it(void) {
  pthread_t thread;
  MUST(!pthread_rwlock_rdlock(&lock));
  MUST(!pthread_create(&thread, NULL, reads, &lock));
  MUST(!pthread_join(thread, NULL));
  MUST(!pthread_rwlock_unlock(&lock));
  MUST(!pthread_rwlock_wrlock(&lock));
  MUST(!pthread_rwlock_unlock(&lock));
}

__attribute__((constructor)) static void begin(void) { use_it(); }
__attribute__((destructor)) static void end(void) { use_it(); }
#else
#ifdef LINKED
void use_it(void);
int main(void) {
  use_it();
  puts("ok");
}
#else
int main(int count, char **arguments) {
  MUST(count == 2);
  for (int i = 0; i < 50; i++) {
    void *library = dlopen(arguments[1], RTLD_NOW);
    MUST(library);
    void (*use_it)(void) = (void (*)(void))dlsym(library, "use_it");
    MUST(use_it);
    use_it();
    MUST(!dlclose(library));
  }
  puts("ok");
}
#endif
#endif
