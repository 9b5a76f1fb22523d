// Another thread destroys a static counter at each instruction of the addition that opens the counter's gate. What is
// added later counts, and in no other counter. A handler of single steps is the other thread.
#include "check.hpp"

#include <signal.h>
#include <ucontext.h>

#include <new>

#if defined(__x86_64__) && !defined(CORELINE_COUNTER_ATOMICS)
namespace {

namespace detail = coreline::detail;
constexpr unsigned long kTrapFlag = 0x100;

/// Memory that stays when the counter is destroyed, as that of a static does.
alignas(64) unsigned char memory[sizeof(coreline::Counter)];
coreline::Counter* counter;
int step, target;

void on_step(int, siginfo_t*, void* context) {
    if (step++ != target) return;
    counter->~Counter();
    static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~static_cast<greg_t>(kTrapFlag);
}

/// Whether the addition had so many instructions.
bool destroy_at(int instruction) {
    counter = new (memory) coreline::Counter;
    auto* gate = reinterpret_cast<detail::Gate*>(memory);
    auto* shared = reinterpret_cast<detail::Word*>(gate + 1);
    // There are slots, and no thread has opened the gate yet.
    for (int i = 0; i < 255; ++i) counter->increment();
    CHECK(detail::make_slots(*gate, 7, true) != nullptr);
    step = 0;
    target = instruction;
    __asm__ volatile("pushfq\n\torq %0, (%%rsp)\n\tpopfq" : : "i"(kTrapFlag) : "cc", "memory");
    const bool is_done = detail::add_otherwise(*gate, shared, 7, 0, 1);
    __asm__ volatile("pushfq\n\tandq %0, (%%rsp)\n\tpopfq" : : "i"(~static_cast<long>(kTrapFlag)) : "cc", "memory");
    if (step <= target) return false;
    if (!is_done) detail::add_here<7, true>(*gate, 0, 1);
    const std::int64_t before = counter->sum();
    for (int i = 0; i < 1000; ++i) counter->increment();
    CHECK_EQUAL(counter->sum() - before, 1000);
    coreline::Counter other;
    for (int i = 0; i < 300; ++i) other.increment();
    counter->increment();
    CHECK_EQUAL(other.sum(), 300);
    return true;
}

}  // namespace

int main() {
    struct sigaction action {};
    action.sa_sigaction = on_step;
    action.sa_flags = SA_SIGINFO;
    CHECK(sigaction(SIGTRAP, &action, nullptr) == 0);
    if (expected_mode() == coreline::Mode::sections) {
        int instruction = 1;
        while (destroy_at(instruction)) ++instruction;
        CHECK(instruction > 20);
    }
    std::puts("ok");
}
#else
int main() { std::puts("ok"); }
#endif
