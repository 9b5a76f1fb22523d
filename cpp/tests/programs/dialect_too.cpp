#include "dialect.hpp"

coreline::Counter counter;

void count_elsewhere(int delta) {
    counter.add(delta);
    counts<int>.increment(1);
}

// An inline function that this file alone keeps.
void count_more() { count_inline(5); }
