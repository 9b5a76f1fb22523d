/* An allocator to preload that takes a mutex and a lock in each call: the lock to read, and in `calloc`
   also to write. It waits forever if a lock call calls it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static char *at, *end;

static void *take_locked(size_t size, int writes) {
  size = (size + 16 + 15) & ~(size_t)15;
  for (;;) {
    /* Twice, as one that looks at two lists. */
    pthread_rwlock_rdlock(&lock);
    pthread_rwlock_rdlock(&lock);
    char *taken = __atomic_fetch_add(&at, size, __ATOMIC_RELAXED);
    int fits = taken && taken + size <= end;
    pthread_rwlock_unlock(&lock);
    pthread_rwlock_unlock(&lock);
    if (fits && !writes) {
      *(size_t *)taken = size - 16;
      return taken + 16;
    }
    pthread_rwlock_wrlock(&lock);
    if (!fits) {
      size_t chunk = size > 1 << 20 ? size : 1 << 20;
      at = mmap(NULL, chunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      end = at + chunk;
    }
    pthread_rwlock_unlock(&lock);
    writes = 0;
  }
}

static void *take(size_t size, int writes) {
  /* Other threads meet at the lock alone. */
  int is_first = size % 64 < 32;
  if (is_first) pthread_mutex_lock(&mutex);
  void *taken = take_locked(size, writes);
  if (is_first) pthread_mutex_unlock(&mutex);
  return taken;
}

void *malloc(size_t size) { return take(size, 0); }
void free(void *object) { (void)object; }
void *calloc(size_t count, size_t size) {
  size_t bytes;
  return __builtin_mul_overflow(count, size, &bytes) ? NULL : take(bytes, 1);
}
void *realloc(void *object, size_t size) {
  void *taken = take(size, 0);
  if (object) {
    size_t had = ((size_t *)object)[-2];
    memcpy(taken, object, had < size ? had : size);
  }
  return taken;
}
void *memalign(size_t align, size_t size) {
  uintptr_t taken = (uintptr_t)take(size + align, 0);
  uintptr_t aligned = (taken + align - 1) & ~(uintptr_t)(align - 1);
  if (aligned != taken) ((size_t *)aligned)[-2] = size;
  return (void *)aligned;
}
void *aligned_alloc(size_t align, size_t size) { return memalign(align, size); }
int posix_memalign(void **at, size_t align, size_t size) { return *at = memalign(align, size), 0; }
