/* See one.c. */
#include "two.h"

#ifdef CORELINE_NO_INLINE
#if CORELINE_HAS_SECTIONS
#error "the macro has no effect"
#endif
#endif

void add_there(size_t time)
{
    OK(coreline_counter_add_inline(counter, 1));
    OK(coreline_counters_add_inline(counters, time % COUNTERS, 1));
    OK(coreline_percpu_add_inline(percpu, time % COUNTERS, 1));
}
