// See mixed.cpp.
#define CORELINE_COUNTER_ATOMICS
#include <coreline/counter.hpp>

void add_without_sections(coreline::Counter& one, coreline::CounterSet<100>& other);

void add_without_sections(coreline::Counter& one, coreline::CounterSet<100>& other) {
    for (std::size_t i = 0; i < 1000; ++i) {
        one.increment();
        other.add(i % 100, 1);
    }
}
