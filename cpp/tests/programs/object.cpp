// A shared object with a copy of the header: its own code, its own choice, and a static counter.
#include <coreline/counter.hpp>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
coreline::Counter own;
}

EXPORT void add_times(coreline::Counter* counter, coreline::CounterSet<3>* set, int times) {
    for (int i = 0; i < times; ++i) {
        counter->increment();
        set->add(static_cast<std::size_t>(i) % 3, 2);
        own.increment();
    }
}
EXPORT coreline::Counter* new_counter() { return new coreline::Counter; }
EXPORT void delete_counter(coreline::Counter* counter) { delete counter; }
EXPORT std::int64_t own_sum() { return own.sum(); }
EXPORT int own_mode() { return static_cast<int>(own.mode()); }
