// A counter that takes spare slots touches those alone, however many are spare.
#include "check.hpp"

#include <sys/mman.h>

namespace detail = coreline::detail;

int main() {
    constexpr unsigned kShift = 7;
    constexpr std::size_t kCount = 5;
    char* slots[kCount];
    for (char*& base : slots) {
        base = detail::take_slots(kShift);
        CHECK(base != nullptr);
    }
    for (char* base : slots) detail::give_back(base, kShift);
    // The last that was given back is first in the list, and the head of the rest may be written.
    const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const auto protect = [&](int how) {
        for (std::size_t i = 0; i + 2 < kCount; ++i) CHECK(mprotect(slots[i] - detail::kAlign, size, how) == 0);
    };
    protect(PROT_NONE);
    detail::slot_word(slots[kCount - 1], 1, kShift, 0).store(1);
    CHECK(detail::take_slots(kShift) == slots[kCount - 1]);
    CHECK_EQUAL(detail::slot_word(slots[kCount - 1], 1, kShift, 0).load(), 0);
    protect(PROT_READ | PROT_WRITE);
    // A chain that comes back while the list is not empty loses nothing.
    detail::Block* chain = detail::spare[kShift].exchange(nullptr);
    detail::give_back(slots[kCount - 1], kShift);
    detail::give_back(chain, kShift);
    for (std::size_t left = kCount; left > 0; --left) {
        const char* base = detail::take_slots(kShift);
        std::size_t i = 0;
        while (i < kCount && slots[i] != base) ++i;
        CHECK(i < kCount);
        slots[i] = nullptr;
    }
    CHECK(detail::spare[kShift].load() == nullptr);
    std::puts("ok");
}
