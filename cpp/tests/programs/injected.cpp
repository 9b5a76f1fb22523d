// A signal at every instruction of an addition. Its handler adds to the same counter, and moves the thread to another
// CPU. In a section, the kernel has to send the thread to the abort handler, and the addition goes to the new CPU.
//
// The instructions are found by single steps on an area that no kernel knows, where nothing is aborted.
//
// Prints how many instructions `increment`, and `add` of a set, execute.
#include "check.hpp"

#include <elf.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <vector>

namespace detail = coreline::detail;

/// A descriptor, as the kernel reads it.
struct Descriptor {
    std::uint32_t version, flags;
    std::uint64_t start, length, abort;
};
// What the linker calls the beginning and the end of the section that debuggers look for.
extern "C" const Descriptor __start___rseq_cs[], __stop___rseq_cs[];

namespace {

coreline::Counter counter;
coreline::CounterSet<3> set;

__attribute__((noinline)) void increment() {
    counter.increment();
    __asm__ volatile("");
}
__attribute__((noinline)) void add_to_set() {
    set.add(1, 5);
    __asm__ volatile("");
}

/// An area that only looks like one.
struct alignas(32) Pretence {
    std::uint32_t cpu_id_start = 0;
    std::int32_t cpu_id = 0;
    const Descriptor* armed = nullptr;
    std::uint32_t rest[4] = {};
};
Pretence pretence;
static_assert(sizeof pretence == 32, "the first rseq area");
static_assert(detail::kCpuId == offsetof(Pretence, cpu_id) && detail::kArmed == offsetof(Pretence, armed));

std::intptr_t pretended() {
    return reinterpret_cast<char*>(&pretence) - detail::thread_pointer();
}

#if defined(__x86_64__)
using Code = std::uint8_t;
constexpr Code kTrap = 0xcc;
constexpr std::uintptr_t kBehindTrap = 1;
using Next = greg_t;
constexpr bool kOneInstruction = true;
greg_t& next(void* context) { return static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]; }
#else
using Code = std::uint32_t;
constexpr Code kTrap = 0xd4200020;  // brk 1
constexpr std::uintptr_t kBehindTrap = 0;
using Next = unsigned long long;
constexpr bool kOneInstruction = false;
unsigned long long& next(void* context) { return static_cast<ucontext_t*>(context)->uc_mcontext.pc; }
#endif

/// That of the function which is tested.
const Descriptor* section = nullptr;

void find_section(void (*f)()) {
    const auto entry = reinterpret_cast<std::uintptr_t>(f);
    section = nullptr;
    for (const Descriptor* it = __start___rseq_cs; it < __stop___rseq_cs; ++it)
        if (it->start - entry < 256 && (section == nullptr || it->start < section->start)) section = it;
    CHECK(section != nullptr && section->version == 0 && section->flags == 0);
    std::uint32_t signature;
    std::memcpy(&signature, reinterpret_cast<const char*>(section->abort) - 4, sizeof signature);
    CHECK_EQUAL(signature, detail::kSignature);
}

#if defined(__x86_64__)
std::vector<std::uintptr_t> steps;

void on_step(int, siginfo_t*, void* context) { steps.push_back(static_cast<std::uintptr_t>(next(context))); }

/// The addresses of the instructions that `f` executes.
std::vector<std::uintptr_t> instructions_of(void (*f)()) {
    struct sigaction action {};
    action.sa_sigaction = on_step;
    action.sa_flags = SA_SIGINFO;
    CHECK(sigaction(SIGTRAP, &action, nullptr) == 0);
    steps.clear();
    steps.reserve(10'000);
    constexpr unsigned long kTrapFlag = 0x100;
    __asm__ volatile("pushfq\n\torq %0, (%%rsp)\n\tpopfq" : : "i"(kTrapFlag) : "cc", "memory");
    f();
    __asm__ volatile("pushfq\n\tandq %0, (%%rsp)\n\tpopfq" : : "i"(~static_cast<long>(kTrapFlag)) : "cc", "memory");
    // From the function's first instruction to its return.
    const auto entry = reinterpret_cast<std::uintptr_t>(f);
    std::size_t first = 0;
    while (first < steps.size() && steps[first] != entry) ++first;
    CHECK(first < steps.size());
    std::vector<std::uintptr_t> found;
    for (std::size_t i = first; i < steps.size(); ++i) {
        found.push_back(steps[i]);
        if (*reinterpret_cast<const Code*>(steps[i]) == 0xc3) break;  // ret
    }
    return found;
}
#else
/// The section's, which all have four bytes.
std::vector<std::uintptr_t> instructions_of(void (*)()) {
    std::vector<std::uintptr_t> found;
    for (std::uint64_t at = section->start; at < section->start + section->length; at += 4) found.push_back(at);
    return found;
}
#endif

std::uintptr_t trap_at = 0;
Code replaced;
int traps = 0;
bool was_aborted = false;
int other_cpu = -1;
void (*intrude)() = nullptr;

void write_code(std::uintptr_t at, Code code) {
    *reinterpret_cast<volatile Code*>(at) = code;
    __builtin___clear_cache(reinterpret_cast<char*>(at), reinterpret_cast<char*>(at) + sizeof code);
}

void on_trap(int, siginfo_t*, void* context) {
    write_code(trap_at, replaced);
    ++traps;
    was_aborted = next(context) == static_cast<Next>(section->abort);
    if (!was_aborted) {
        CHECK_EQUAL(next(context), trap_at + kBehindTrap);
        next(context) = static_cast<Next>(trap_at);
    }
    intrude();
    if (other_cpu >= 0) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(static_cast<unsigned>(other_cpu), &one);
        CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    } else {
        pretence.cpu_id = 1;
    }
}

void inject(std::uintptr_t at) {
    struct sigaction action {};
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO;
    CHECK(sigaction(SIGTRAP, &action, nullptr) == 0);
    const auto size = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const std::uintptr_t page = at & ~(size - 1);
    CHECK(mprotect(reinterpret_cast<void*>(page), 2 * size, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    trap_at = at;
    replaced = *reinterpret_cast<const Code*>(at);
    traps = 0;
    write_code(at, kTrap);
}

bool in_section(std::uintptr_t at) { return at - section->start < section->length; }

/// The value of a counter's slot. Slots are what follows the gate's pointer.
std::uint64_t in_slot(const void* of, unsigned shift, int cpu, std::size_t word) {
    char* base = static_cast<const detail::Gate*>(of)->base.load();
    return detail::slot_word(base, static_cast<std::size_t>(cpu), shift, word).load();
}

struct Case {
    const char* name;
    void (*f)();
    void (*intruder)();
    const void* gate;
    std::size_t word;
    std::uint64_t delta;
};

void pin_to(int cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<unsigned>(cpu), &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0 && sched_getcpu() == cpu);
}

/// Aborts at each instruction of the section. `home` and `away` are CPUs, the same one if there is no other.
void abort_everywhere(const Case& it, const std::vector<std::uintptr_t>& instructions, int home, int away) {
    int aborts = 0;
    for (const std::uintptr_t at : instructions) {
        // A thread that was preempted in the section meets the trap at its second visit: the trap is still there.
        pin_to(home);
        other_cpu = away;
        intrude = it.intruder;
        const std::uint64_t home_before = in_slot(it.gate, 7, home, it.word);
        const std::uint64_t away_before = in_slot(it.gate, 7, away, it.word);
        inject(at);
        it.f();
        CHECK_EQUAL(traps, 1);
        CHECK_EQUAL(was_aborted, in_section(at));
        aborts += was_aborted;
        const std::uint64_t at_home = in_slot(it.gate, 7, home, it.word) - home_before;
        const std::uint64_t from_home = in_slot(it.gate, 7, away, it.word) - away_before;
        CHECK_EQUAL(at_home + (home == away ? 0 : from_home), 2 * it.delta);
        // The intruder's addition is at home; the aborted one follows the thread.
        if (was_aborted && home != away) CHECK_EQUAL(from_home, it.delta);
    }
    CHECK(aborts >= 6);
    std::printf("%s: %d aborts\n", it.name, aborts);
}

}  // namespace

int main() {
    // Slots for sections, whatever the kernel has, and a thread that is registered where it can be.
    for (int i = 0; i < 1000; ++i) {
        increment();
        add_to_set();
    }
    const Case cases[] = {
        {"increment", increment, [] { counter.increment(); }, &counter, 0, 1},
        {"add to a set", add_to_set, [] { set.add(1, 5); }, &set, 1, 5},
    };
    const std::intptr_t area = detail::section_area.load();
    const bool only_steps = expected_mode() != coreline::Mode::sections;
    if (only_steps) {
        // The header has chosen atomic instructions. Then the part without aborts shows what it can.
        for (const Case& it : cases) {
            auto& gate = *const_cast<detail::Gate*>(static_cast<const detail::Gate*>(it.gate));
            detail::block_of(gate.base.load()).sections = true;
            gate.limit.store(detail::block_of(gate.base.load()).cpus);
        }
    } else {
        CHECK(counter.mode() == coreline::Mode::sections && set.mode() == coreline::Mode::sections);
    }
    cpu_set_t all;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    int home = -1, away = -1;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(static_cast<unsigned>(cpu), &all)) continue;
        if (home < 0) home = cpu;
        away = cpu;
    }
    for (const Case& it : cases) {
        detail::section_area.store(pretended());
        // On CPU 0 by pretence, on one beyond the slots, and on a thread that is not registered.
        const auto limit = static_cast<std::int32_t>(detail::block_of(
            static_cast<const detail::Gate*>(it.gate)->base.load()).cpus);
        const auto sum = [&] { return it.gate == &counter ? counter.sum() : set.sum(1); };
        for (const std::int32_t cpu : {0, limit - 1, limit, INT32_MAX, -1, -2}) {
            pretence.cpu_id = cpu;
            const std::int64_t before = sum();
            const bool has_slot = cpu >= 0 && cpu < limit;
            const std::uint64_t there = has_slot ? in_slot(it.gate, 7, cpu, it.word) : 0;
            it.f();
            CHECK_EQUAL(sum() - before, it.delta);
            if (has_slot) CHECK_EQUAL(in_slot(it.gate, 7, cpu, it.word) - there, it.delta);
            // Not armed behind the section, however the thread left it.
            CHECK(pretence.armed == nullptr);
        }
        pretence.cpu_id = 0;
        find_section(it.f);
        const auto instructions = instructions_of(it.f);
        std::printf("%s: %zu instructions\n", it.name, instructions.size());
        int inside = 0;
        for (const std::uintptr_t at : instructions) inside += in_section(at);
        CHECK(inside >= 6);
        // The mistake that the next part would find: without an abort the addition stays where it began, and where an
        // addition has three instructions, that of the intruder is lost.
        other_cpu = -1;
        intrude = it.intruder;
        std::uintptr_t last = 0;
        for (const std::uintptr_t at : instructions)
            if (in_section(at)) last = at;
        const std::uint64_t first_slot = in_slot(it.gate, 7, 0, it.word);
        inject(last);
        it.f();
        CHECK_EQUAL(traps, 1);
        CHECK(!was_aborted);
        CHECK_EQUAL(in_slot(it.gate, 7, 0, it.word) - first_slot, kOneInstruction ? 2 * it.delta : it.delta);
        detail::section_area.store(area);
        if (!only_steps) {
            abort_everywhere(it, instructions, home, home);
            abort_everywhere(it, instructions, home, away);
        }
    }
    std::puts("ok");
}
