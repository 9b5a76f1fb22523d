// A file that also uses what the C library declares, and uses it before the header does.
#if __has_include(<sys/rseq.h>)
#include <sys/rseq.h>
extern "C" const void* rseq_of_the_c_library() { return __rseq_size > 0 ? &__rseq_offset : nullptr; }
#endif
#include "dialect.hpp"

coreline::Counter counter;

void count_elsewhere(int delta) {
    counter.add(delta);
    counts<int>.increment(1);
}

// An inline function that this file alone keeps.
void count_more() { count_inline(5); }
