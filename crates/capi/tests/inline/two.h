/* What the two files of one program share. */
#ifndef TWO_H
#define TWO_H

#include "../c/check.h"

enum { TIMES = 50000, COUNTERS = 50 };

#ifdef __cplusplus
extern "C" {
#endif
extern coreline_counter_t *counter;
extern coreline_counters_t *counters;
extern coreline_percpu_t *percpu;
void add_there(size_t time);
#ifdef __cplusplus
}
#endif

#endif
