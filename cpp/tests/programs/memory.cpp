// Without memory for slots a counter stays on one word, and asks again later.
#include "check.hpp"

#include <sys/mman.h>
#include <sys/resource.h>

int main() {
    coreline::Counter counter;
    coreline::CounterSet<100> set;
    counter.increment();
    const auto limit_to = [](rlim_t bytes) {
        rlimit limit;
        CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
        limit.rlim_cur = bytes;
        CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    };
    limit_to(0);
    CHECK(mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    errno = 77;
    for (std::size_t i = 0; i < 1000; ++i) {
        counter.increment();
        set.add(i % 100, 3);
    }
    CHECK_EQUAL(errno, 77);
    CHECK(counter.mode() == coreline::Mode::compact && set.mode() == coreline::Mode::compact);
    CHECK_EQUAL(counter.sum(), 1001);
    limit_to(RLIM_INFINITY);
    constexpr int kMillion = 1 << 20;
    for (int i = 0; i < kMillion; ++i) {
        counter.increment();
        set.add(7, 1);
    }
    CHECK(counter.mode() == expected_mode() && set.mode() == expected_mode());
    CHECK_EQUAL(counter.sum(), 1001 + kMillion);
    CHECK_EQUAL(set.sum(7), 30 + kMillion);
    CHECK_EQUAL(set.sum(6), 30);
    std::puts("ok");
}
