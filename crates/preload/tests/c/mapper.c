/* A library to preload that keeps a list of mappings under a lock, as tracers of memory do. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_rwlock_t list = PTHREAD_RWLOCK_INITIALIZER;
static long count;

static void add(long more) {
  pthread_rwlock_wrlock(&list);
  count += more;
  pthread_rwlock_unlock(&list);
}

void *mmap(void *at, size_t size, int access, int flags, int file, off_t offset) {
  void *mapped = (void *)syscall(SYS_mmap, at, size, access, flags, file, offset);
  add(1);
  return mapped;
}
void *mmap64(void *at, size_t size, int access, int flags, int file, off_t offset) {
  return mmap(at, size, access, flags, file, offset);
}
int munmap(void *at, size_t size) {
  add(-1);
  return syscall(SYS_munmap, at, size);
}

/* Reads in a read, so that readers meet. */
long mappings(void) {
  pthread_rwlock_rdlock(&list);
  pthread_rwlock_rdlock(&list);
  long now = count;
  pthread_rwlock_unlock(&list);
  pthread_rwlock_unlock(&list);
  return now;
}
