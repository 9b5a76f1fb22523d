// With mixed_too.cpp, which is compiled without sections: the linker must not take one file's half of an addition.
#include "check.hpp"

coreline::Counter counter;
coreline::CounterSet<100> set;
void add_without_sections(coreline::Counter& one, coreline::CounterSet<100>& other);

int main() {
    alarm(30);
    coreline::Counter compact;
    for (std::size_t i = 0; i < 1000; ++i) {
        counter.increment();
        set.add(i % 100, 1);
    }
    add_without_sections(counter, set);
    add_without_sections(compact, set);
    for (int i = 0; i < 1000; ++i) compact.increment();
    CHECK_EQUAL(counter.sum(), 2000);
    CHECK_EQUAL(compact.sum(), 2000);
    CHECK_EQUAL(set.sum(99), 30);
    // The half that makes the slots decides.
    CHECK(counter.mode() == expected_mode() && set.mode() == expected_mode());
    CHECK(compact.mode() == coreline::Mode::atomic);
    std::puts("ok");
}
