/* A library that is preloaded into creates.c. Its poll says that there is room, as if another
   process took the room after that. Its write says by a dot on standard output that it was called,
   as puts does not call it. */
#define _GNU_SOURCE
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

int poll(struct pollfd *files, nfds_t count, int timeout) {
  (void)timeout;
  for (nfds_t i = 0; i < count; i++) files[i].revents = POLLOUT;
  return count;
}

ssize_t write(int file, const void *text, size_t bytes) {
  syscall(SYS_write, STDOUT_FILENO, ".", (size_t)1);
  return syscall(SYS_write, file, text, bytes);
}
