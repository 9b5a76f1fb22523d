// objects A.so B.so: three copies of the header in one process add to the same counters, and copies are unloaded.
#include "check.hpp"

#include <dlfcn.h>
#include <sched.h>

#include <thread>
#include <vector>

namespace {

coreline::Counter counter;
coreline::CounterSet<3> set;
constexpr int kAdditions = 120'000;

template <class F>
F* symbol(void* object, const char* name) {
    void* found = dlsym(object, name);
    CHECK(found != nullptr);
    return reinterpret_cast<F*>(found);
}

struct Object {
    explicit Object(const char* path) : handle(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
        if (handle == nullptr) std::fprintf(stderr, "%s\n", dlerror());
        CHECK(handle != nullptr);
        add_times = symbol<void(coreline::Counter*, coreline::CounterSet<3>*, int)>(handle, "add_times");
        new_counter = symbol<coreline::Counter*()>(handle, "new_counter");
        delete_counter = symbol<void(coreline::Counter*)>(handle, "delete_counter");
        own_sum = symbol<std::int64_t()>(handle, "own_sum");
        own_mode = symbol<int()>(handle, "own_mode");
    }
    void close() { CHECK(dlclose(handle) == 0); }
    void* handle;
    void (*add_times)(coreline::Counter*, coreline::CounterSet<3>*, int);
    coreline::Counter* (*new_counter)();
    void (*delete_counter)(coreline::Counter*);
    std::int64_t (*own_sum)();
    int (*own_mode)();
};

/// Threads of all three copies add to these, at the same time.
void all_add_to(coreline::Counter& one, coreline::CounterSet<3>& other, const Object& a, const Object& b) {
    const std::int64_t before = one.sum();
    std::vector<std::thread> threads;
    for (int round = 0; round < 2; ++round) {
        threads.emplace_back([&] { a.add_times(&one, &other, kAdditions); });
        threads.emplace_back([&] { b.add_times(&one, &other, kAdditions); });
        threads.emplace_back([&] {
            for (int i = 0; i < kAdditions; ++i) {
                one.increment();
                other.add(static_cast<std::size_t>(i) % 3, 2);
            }
        });
        // One thread of all three.
        threads.emplace_back([&] {
            for (int i = 0; i < kAdditions / 300; ++i) {
                a.add_times(&one, &other, 100);
                b.add_times(&one, &other, 100);
                for (std::size_t j = 0; j < 100; ++j) {
                    one.increment();
                    other.add(j % 3, 2);
                }
            }
        });
    }
    for (auto& thread : threads) thread.join();
    CHECK_EQUAL(one.sum() - before, 8 * kAdditions);
}

}  // namespace

int main(int argc, char** argv) {
    CHECK(argc == 3);
    Object a(argv[1]), b(argv[2]);
    // Where the C library registers no thread, sections run in the program alone: it makes the slots.
    for (int i = 0; i < 300; ++i) counter.increment();
    all_add_to(counter, set, a, b);
    CHECK_EQUAL(set.sum(0) + set.sum(1) + set.sum(2), 16 * kAdditions);
    CHECK(counter.mode() == expected_mode());
    // A counter of an object, whose slots are made there.
    coreline::Counter* theirs = a.new_counter();
    a.add_times(theirs, &set, 1000);
    all_add_to(*theirs, set, a, b);
    b.delete_counter(theirs);
    std::printf("modes: %d here, %d and %d there\n", static_cast<int>(counter.mode()), a.own_mode(), b.own_mode());

    // Threads whose last section was one of an object that goes. They are preempted, moved and signalled afterwards.
    std::atomic<bool> left{false}, over{false};
    std::atomic<int> waiting{0};
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; ++number)
        threads.emplace_back([&] {
            a.add_times(&counter, &set, 1000);
            waiting.fetch_add(1);
            while (!left.load()) sched_yield();
            while (!over.load()) sched_yield();
            counter.increment();
        });
    while (waiting.load() != 4) sched_yield();
    a.add_times(&counter, &set, 1000);
    const std::int64_t before = counter.sum();
    a.close();
    left.store(true);
    for (int i = 0; i < 200; ++i) {
        CHECK(child_succeeds([] { counter.increment(); }));
        sched_yield();
    }
    over.store(true);
    for (auto& thread : threads) thread.join();
    CHECK_EQUAL(counter.sum() - before, 4);
    // Again and again: what a copy leaves behind is right for the next one.
    for (int round = 0; round < 100; ++round) {
        Object again(argv[1]);
        CHECK_EQUAL(again.own_sum(), 0);
        again.add_times(&counter, &set, 2000);
        CHECK_EQUAL(again.own_sum(), 2000);
        again.close();
    }
    CHECK(dlopen(argv[1], RTLD_NOLOAD | RTLD_NOW) == nullptr);
    CHECK_EQUAL(counter.sum() - before, 4 + 200'000);
    std::puts("ok");
}
