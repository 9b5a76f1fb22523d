// Totals are exact: many threads that move, signal handlers, forks, short threads, statics.
#include "check.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/time.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace {

constexpr int kAdditions = 200'000;
constexpr std::size_t kWords = 5;

/// Adds in its constructor, before the counter's own turn, and in its destructor, after it.
struct Around {
    explicit Around(int exits) : ends(exits) {}
    ~Around();
    int ends;
};
extern coreline::Counter lifelong;
Around around([] {
    for (int i = 0; i < 1000; ++i) lifelong.increment();
    return 1000;
}());
coreline::Counter lifelong;

Around::~Around() {
    for (int i = 0; i < ends; ++i) lifelong.increment();
    CHECK_EQUAL(lifelong.sum(), 3000);
    CHECK(lifelong.mode() == coreline::Mode::compact);
    std::puts("ok");
}

coreline::Counter counter;
coreline::CounterSet<kWords> set;
std::atomic<std::int64_t> handled{0};

void on_signal(int) {
    const int before = errno;
    counter.increment();
    set.add(2, 7);
    handled.fetch_add(1);
    if (errno != before) std::_Exit(2);
}

std::vector<std::size_t> allowed_cpus() {
    cpu_set_t all;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    std::vector<std::size_t> cpus;
    for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, &all)) cpus.push_back(cpu);
    return cpus;
}

void move_to(std::size_t cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

void many_threads() {
    const auto cpus = allowed_cpus();
    const std::size_t count = 3 * std::min<std::size_t>(cpus.size(), 8) + 2;
    const std::int64_t before = counter.sum();
    const std::array<std::int64_t, kWords> set_before = set.sums();
    const std::int64_t handled_before = handled.load();
    // Signals come all the time, to whichever thread runs.
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGALRM, &action, nullptr) == 0);
    itimerval often{{0, 300}, {0, 300}};
    CHECK(setitimer(ITIMER_REAL, &often, nullptr) == 0);
    std::vector<std::thread> threads;
    for (std::size_t number = 0; number < count; ++number)
        threads.emplace_back([=] {
            for (int i = 0; i < kAdditions; ++i) {
                // A third is pinned, a third moves, and the kernel places the rest.
                if (number % 3 == 0 && i == 0) move_to(cpus[number % cpus.size()]);
                if (number % 3 == 1 && i % 512 == 0) move_to(cpus[static_cast<std::size_t>(i / 512) % cpus.size()]);
                if (i % 4096 == 0) sched_yield();
                counter.add(i % 2 == 0 ? 3 : -1);
                set.add(static_cast<std::size_t>(i) % kWords, 1);
            }
        });
    // ThreadSanitizer runs a handler at once in a thread that joins, also in the middle of its own
    // `free`, with a lock that the handler then waits for. So other threads take the signals.
    sigset_t alarm;
    CHECK(sigemptyset(&alarm) == 0 && sigaddset(&alarm, SIGALRM) == 0);
    CHECK(pthread_sigmask(SIG_BLOCK, &alarm, nullptr) == 0);
    for (auto& thread : threads) thread.join();
    CHECK(pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr) == 0);
    itimerval never{};
    CHECK(setitimer(ITIMER_REAL, &never, nullptr) == 0);
    action.sa_handler = SIG_IGN;
    CHECK(sigaction(SIGALRM, &action, nullptr) == 0);
    const std::int64_t signals = handled.load() - handled_before;
    CHECK(signals > 0);
    const auto additions = static_cast<std::int64_t>(count) * kAdditions;
    CHECK_EQUAL(counter.sum() - before, additions + signals);
    for (std::size_t word = 0; word < kWords; ++word) {
        const std::int64_t by_handlers = word == 2 ? 7 * signals : 0;
        CHECK_EQUAL(set.sum(word) - set_before[word], additions / std::int64_t{kWords} + by_handlers);
    }
    CHECK(counter.mode() == expected_mode());
    CHECK(set.mode() == expected_mode());
}

void add_at_exit(void* round) {
    counter.increment();
    const auto count = reinterpret_cast<std::uintptr_t>(round);
    static pthread_key_t key = [] {
        pthread_key_t made;
        CHECK(pthread_key_create(&made, add_at_exit) == 0);
        return made;
    }();
    // Until the last round of destructors, and in it.
    if (count < 4) pthread_setspecific(key, reinterpret_cast<void*>(count + 1));
}

struct AtExit {
    ~AtExit() { add_at_exit(reinterpret_cast<void*>(std::uintptr_t{1})); }
};

void short_threads() {
    const std::int64_t before = counter.sum();
    constexpr int kThreads = 1500;
    std::atomic<int> detached{0};
    for (int i = 0; i < kThreads; i += 3) {
        std::thread third([&] {
            counter.increment();
            detached.fetch_add(1);
        });
        third.detach();
        const auto run = [] {
            static thread_local AtExit at_exit;
            counter.increment();
            static_cast<void>(at_exit);
        };
        std::thread first(run), second(run);
        first.join();
        second.join();
    }
    while (detached.load() < kThreads / 3) sched_yield();
    // Of each that was joined: itself, its thread-local's destructor, and three or four rounds of the key.
    const std::int64_t joined = 2 * kThreads / 3, more = counter.sum() - before - kThreads / 3;
    CHECK_EQUAL(more % joined, 0);
    CHECK(more / joined >= 4);
}

void forks() {
    std::atomic<bool> over{false};
    std::int64_t added = 0;
    coreline::Counter theirs;
    std::thread adder([&] {
        for (; !over.load(); ++added) theirs.increment();
    });
    for (int round = 0; round < 60; ++round) {
        CHECK(child_succeeds([&] {
            const std::int64_t before = theirs.sum(), more = counter.sum();
            const auto add = [] {
                for (int i = 0; i < 3000; ++i) counter.increment();
            };
            // ThreadSanitizer allows a forked child no threads.
            if (!kThreadSanitizer) std::thread(add).join();
            if (kThreadSanitizer) add();
            for (int i = 0; i < 3000; ++i) {
                theirs.increment();
                counter.increment();
            }
            CHECK_EQUAL(theirs.sum() - before, 3000);
            CHECK_EQUAL(counter.sum() - more, 6000);
            coreline::Counter fresh;
            for (int i = 0; i < 1000; ++i) fresh.increment();
            CHECK_EQUAL(fresh.sum(), 1000);
            CHECK(fresh.mode() == expected_mode());
        }));
    }
    over.store(true);
    adder.join();
    CHECK_EQUAL(theirs.sum(), added);
}

/// Slots of destroyed counters are used again, and begin at zero.
void counters_come_and_go() {
    coreline::Counter* first = nullptr;
    for (int round = 0; round < 3000; ++round) {
        auto one = std::make_unique<coreline::Counter>();
        auto other = std::make_unique<coreline::CounterSet<40>>();
        for (int i = 0; i < 300; ++i) {
            one->add(round + 1);
            other->add(static_cast<std::size_t>(i % 40), round);
        }
        CHECK_EQUAL(one->sum(), 300LL * (round + 1));
        std::int64_t total = 0;
        for (const std::int64_t sum : other->sums()) total += sum;
        CHECK_EQUAL(total, 300LL * round);
        CHECK(one->mode() == expected_mode() && other->mode() == expected_mode());
        if (first == nullptr) first = one.get();
    }
    // 3000 rounds with slots of their own would map more than 60 MiB.
    long pages = 0;
    std::FILE* statm = std::fopen("/proc/self/statm", "r");
    CHECK(statm != nullptr && std::fscanf(statm, "%*d %ld", &pages) == 1);
    std::fclose(statm);
    CHECK(kSanitizer || pages * sysconf(_SC_PAGESIZE) < (32L << 20));
}

void values_wrap_and_are_signed() {
    coreline::Counter one;
    one.add(INT64_MIN);
    one.add(-1);
    CHECK_EQUAL(one.sum(), INT64_MAX);
    for (int i = 0; i < 1000; ++i) one.add(-1'000'000'007);
    CHECK_EQUAL(one.sum(), INT64_MAX - 1'000'000'007'000);
}

void a_counter_is_compact_at_first() {
    static_assert(sizeof(coreline::Counter) == 24 && sizeof(coreline::CounterSet<10>) == 96, "as the README says");
    move_to(allowed_cpus().front());
    coreline::Counter one;
    for (int i = 0; i < 255; ++i) one.increment();
    CHECK(one.mode() == coreline::Mode::compact);
    one.increment();
    CHECK(one.mode() == expected_mode());
    CHECK_EQUAL(one.sum(), 256);
}

}  // namespace

int main(int argc, char**) {
    // With an argument, all on one CPU.
    if (argc > 1) move_to(allowed_cpus().front());
    CHECK_EQUAL(lifelong.sum(), 1000);
    for (int i = 0; i < 1000; ++i) lifelong.increment();
    CHECK(lifelong.mode() == expected_mode());
    std::thread(a_counter_is_compact_at_first).join();
    values_wrap_and_are_signed();
    many_threads();
    short_threads();
    many_threads();
    counters_come_and_go();
    forks();
}
