// What an addition costs, beside one shared atomic and 64 shards that threads choose by a hash.
//
//     c++ -std=c++17 -O2 -pthread -I include bench.cpp -o bench && ./bench
//
// Each round measures all candidates one after the other, with 1 and with 2 threads. The medians of the rounds count.

#include <coreline/counter.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kRounds = 21, kAdditions = 10'000'000;

/// As engines write it by hand.
class ShardedAtomic {
public:
    void add(std::uint64_t delta) {
        shards_[shard()].value.fetch_add(delta, std::memory_order_relaxed);
    }
    std::uint64_t sum() const {
        std::uint64_t total = 0;
        for (const auto& shard : shards_) total += shard.value.load(std::memory_order_relaxed);
        return total;
    }

private:
    static std::size_t shard() {
        static thread_local const std::size_t mine =
            std::hash<std::thread::id>{}(std::this_thread::get_id()) % 64;
        return mine;
    }
    struct alignas(128) Shard {
        std::atomic<std::uint64_t> value{0};
    };
    std::array<Shard, 64> shards_;
};

coreline::Counter counter;
coreline::CounterSet<8> set;
std::atomic<std::uint64_t> shared{0};
ShardedAtomic sharded;

struct Candidate {
    const char* name;
    void (*add)(int times);
};

/// The loop is compiled into each candidate, and keeps the additions apart.
template <class F>
void times(int count, F add) {
    for (int i = 0; i < count; ++i) {
        add();
        __asm__ volatile("" ::: "memory");
    }
}

const Candidate kCandidates[] = {
    {"coreline::Counter", [](int count) { times(count, [] { counter.increment(); }); }},
    {"coreline::CounterSet<8>", [](int count) { times(count, [] { set.increment(3); }); }},
    {"one std::atomic", [](int count) { times(count, [] { shared.fetch_add(1, std::memory_order_relaxed); }); }},
    {"64 shards by thread", [](int count) { times(count, [] { sharded.add(1); }); }},
};

/// The time that the thread ran, in nanoseconds: other load on its CPU does not count.
double now() {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

/// Nanoseconds for an addition of each of so many threads.
double measure(const Candidate& candidate, int threads) {
    std::atomic<int> ready{0};
    std::vector<double> took(static_cast<std::size_t>(threads));
    std::vector<std::thread> running;
    for (int number = 0; number < threads; ++number)
        running.emplace_back([&, number] {
            candidate.add(1000);
            ready.fetch_add(1);
            while (ready.load() != threads) {
            }
            const double begin = now();
            candidate.add(kAdditions);
            took[static_cast<std::size_t>(number)] = (now() - begin) / kAdditions;
        });
    for (auto& thread : running) thread.join();
    return *std::max_element(took.begin(), took.end());
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

}  // namespace

int main() {
    std::printf("%-26s %10s %10s\n", "ns per addition", "1 thread", "2 threads");
    constexpr std::size_t kCount = sizeof kCandidates / sizeof *kCandidates;
    std::array<std::array<std::vector<double>, 2>, kCount> found;
    for (int round = 0; round < kRounds; ++round)
        for (std::size_t i = 0; i < kCount; ++i)
            for (int threads = 1; threads <= 2; ++threads)
                found[i][static_cast<std::size_t>(threads - 1)].push_back(measure(kCandidates[i], threads));
    for (std::size_t i = 0; i < kCount; ++i)
        std::printf("%-26s %10.2f %10.2f\n", kCandidates[i].name, median(found[i][0]), median(found[i][1]));
    constexpr const char* kModes[] = {"compact", "atomic", "sections"};
    std::printf("mode: %s; sums: %lld and %llu\n", kModes[static_cast<int>(counter.mode())],
                static_cast<long long>(counter.sum()), static_cast<unsigned long long>(sharded.sum()));
}
