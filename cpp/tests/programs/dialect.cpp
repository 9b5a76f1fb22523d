// With dialect_too.cpp: two files with the same inline functions, of which the linker keeps one copy.
#include "dialect.hpp"

#include <pthread.h>

int main() {
    for (int i = 0; i < 500; ++i) {
        count_inline(1);
        count_elsewhere(2);
    }
    const auto on_a_thread = [](void*) -> void* {
        count_elsewhere(10);
        return nullptr;
    };
    pthread_t thread;
    CHECK(pthread_create(&thread, nullptr, on_a_thread, nullptr) == 0 && pthread_join(thread, nullptr) == 0);
    CHECK_EQUAL(counter.sum(), 1510);
    CHECK_EQUAL(counts<int>.sum(0), 500);
    CHECK_EQUAL(counts<int>.sum(1), 501);
    CHECK(counter.mode() == expected_mode() && counts<int>.mode() == expected_mode());
    std::puts("ok");
}
