// A fiber adds, and threads resume it in turn. The memory of a thread that has ended must not be written.
#include "check.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

namespace {

coreline::Counter one, other;
constexpr int kRounds = 5;
ucontext_t fiber, thread;
alignas(64) char stack[1 << 16];

__attribute__((noinline)) void yield() {
    CHECK(swapcontext(&fiber, &thread) == 0);
    __asm__ volatile("");
}

// Without slots: an addition disarms the thread, and goes another way.
__attribute__((noinline)) void add_and_yield(int rounds) {
    do {
        one.increment();
        other.increment();
        yield();
    } while (--rounds != 0);
}

void run() {
    add_and_yield(kRounds);
    yield();
}

void* resume(void*) {
    CHECK(swapcontext(&thread, &fiber) == 0);
    return nullptr;
}

}  // namespace

int main() {
    // So that the process has chosen how to add.
    coreline::Counter first;
    first.increment();
    CHECK(getcontext(&fiber) == 0);
    fiber.uc_stack.ss_sp = stack;
    fiber.uc_stack.ss_size = sizeof stack;
    makecontext(&fiber, run, 0);
    for (int round = 0; round <= kRounds; ++round) {
        // The thread's rseq area lies in the memory of its stack.
        constexpr std::size_t size = 1 << 20;
        void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(memory != MAP_FAILED);
        pthread_attr_t attributes;
        CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, memory, size) == 0);
        pthread_t handle;
        CHECK(pthread_create(&handle, &attributes, resume, nullptr) == 0 && pthread_join(handle, nullptr) == 0);
        CHECK(mprotect(memory, size, PROT_NONE) == 0);
    }
    CHECK_EQUAL(one.sum() + other.sum(), 2 * kRounds);
    std::puts("ok");
}
