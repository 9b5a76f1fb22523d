#pragma once
#include "check.hpp"

extern coreline::Counter counter;
template <class T>
inline coreline::CounterSet<2> counts;

inline void count_inline(int delta) {
    counter.add(delta);
    counts<int>.increment(0);
}
void count_elsewhere(int delta);
