// coreline/counter.hpp: counters that all CPUs can add to cheaply at the same time.
//
// One header for C++17 and later, without a library. SPDX-License-Identifier: MIT OR Apache-2.0
//
//     #include <coreline/counter.hpp>
//
//     static coreline::Counter requests;      // ready before the first constructor runs
//     static coreline::CounterSet<3> errors;  // three counters that share memory
//
//     requests.increment();
//     errors.add(2, 5);
//     std::int64_t total = requests.sum();
//
// Each CPU has a slot of its own, and a sum adds the slots up. On Linux for x86-64, an addition is a
// restartable section: a few instructions that end in a plain store to the slot of the thread's CPU. If the kernel
// moves, preempts or signals the thread in between, it sends the thread to the section's beginning. Elsewhere an
// addition is an atomic instruction on one of the slots.
//
// **One way for each slot.** A plain addition and an atomic one to the same word can lose an update. So the copy of
// this header that makes the slots of a counter decides how all threads add to them, and the slots say so. A thread
// that cannot run sections there adds to one word that all CPUs share, with an atomic instruction: a thread that the
// kernel refuses to register, one on a CPU beyond the slots, and one in code that was compiled without sections.
//
// **Compact at first.** A counter is one word for all CPUs until a second CPU adds or until 256 additions. Without
// memory for slots it stays so, and asks again after a million additions.
//
// **Memory.** A `Counter` has 24 bytes, a `CounterSet<N>` has 16 + 8 N. Slots come in whole pages from `mmap`. For each
// CPU that the kernel can have (a multiple of 64), they take 8 N bytes, rounded up to a power of two, and at least 128.
// Only the pages of the CPUs that add are resident. A destroyed counter leaves its slots to later counters.
//
// **Signals, fork, exit.** On Linux every function is async-signal-safe and leaves `errno` alone, except for the first
// addition by the code of a program or shared object: that one reads the environment, and may call
// `pthread_key_create`. A forked child has the values at the time of the fork. A child of `vfork` must not add. A
// static counter still works after its destructor ran, but what other threads add while it runs can be lost, or counted
// by a later counter. A shared object with this header can be unloaded. All slots that its counters took stay mapped.
//
// `CORELINE_RSEQ=off` in the environment, or `#define CORELINE_COUNTER_ATOMICS`, chooses atomic instructions. So does
// ThreadSanitizer, which does not see the stores of a section.

#ifndef CORELINE_COUNTER_HPP
#define CORELINE_COUNTER_HPP

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__linux__)
#include <elf.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__SANITIZE_THREAD__)
#define CORELINE_COUNTER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CORELINE_COUNTER_TSAN 1
#endif
#endif

// A 64-bit Linux whose rseq areas this header knows. On aarch64 it does not use sections: an addition there has three
// instructions, and some kernels do not abort a section of a thread that they preempt and that stays on its CPU.
#if defined(__linux__) && defined(__GNUC__) && \
    ((defined(__x86_64__) && defined(__LP64__)) || (defined(__AARCH64EL__) && defined(__LP64__)))
#define CORELINE_COUNTER_RSEQ 1
#else
#define CORELINE_COUNTER_RSEQ 0
#endif
#if CORELINE_COUNTER_RSEQ && defined(__x86_64__) && !defined(CORELINE_COUNTER_ATOMICS) && \
    !defined(CORELINE_COUNTER_TSAN)
#define CORELINE_COUNTER_SECTIONS 1
#define CORELINE_COUNTER_BUILD sections
#else
#define CORELINE_COUNTER_SECTIONS 0
#define CORELINE_COUNTER_BUILD atomics
#endif

#if defined(__GNUC__) && !defined(_WIN32)
#define CORELINE_COUNTER_HIDDEN __attribute__((visibility("hidden")))
#define CORELINE_COUNTER_SHOWN __attribute__((visibility("default")))
#define CORELINE_COUNTER_INLINE __attribute__((always_inline)) inline
#define CORELINE_COUNTER_APART __attribute__((noinline)) inline
#define CORELINE_COUNTER_SLOW __attribute__((noinline, cold)) inline
#else
#define CORELINE_COUNTER_HIDDEN
#define CORELINE_COUNTER_SHOWN
#define CORELINE_COUNTER_INLINE inline
#define CORELINE_COUNTER_APART inline
#define CORELINE_COUNTER_SLOW inline
#endif

namespace coreline {
// Another number for another layout, so that copies with different layouts do not meet.
inline namespace v1 {

/// How additions to a counter work.
enum class Mode {
    compact,  ///< with atomic instructions on one word that all CPUs share
    atomic,   ///< with atomic instructions on the slot of a CPU
    sections  ///< in restartable sections, on the slot of the thread's CPU
};

// Hidden: each shared object has its own copy, and goes with it.
namespace detail CORELINE_COUNTER_HIDDEN {

using Word = std::atomic<std::uint64_t>;
static_assert(sizeof(Word) == 8 && Word::is_always_lock_free, "slots have lock-free words of 64 bits");

/// Two lines, as some processors fetch lines in pairs.
constexpr std::size_t kAlign = 128;
/// Additions after which slots pay even on one CPU.
constexpr std::uint32_t kHot = 256;

/// What an addition reads first. The layout is that of the sections.
struct CORELINE_COUNTER_SHOWN Gate {
    /// The number of slots that sections can use; 0: none.
    std::atomic<std::uint32_t> limit;
    /// Additions without slots, in the lower 20 bits; above them 1 + the first place that added, or why there will be
    /// none. A hint, so of two threads that note an addition at the same time, one may be lost.
    std::atomic<std::uint32_t> noted;
    /// Slot 0; null until there are slots. Stays when the counter is destroyed, because a thread may be in a section.
    std::atomic<char*> base;
};
#if CORELINE_COUNTER_RSEQ
static_assert(sizeof(Gate) == 16, "sections read `limit` at 0 and `base` at 8");
#endif

constexpr unsigned kPlaceShift = 20;
constexpr std::uint32_t kNoted = (1U << kPlaceShift) - 1;
constexpr std::uint32_t kPlaces = 0xffd;
constexpr std::uint32_t kNoMemory = 0xffe;
constexpr std::uint32_t kDestroyed = 0xfff;

/// Lies before slot 0.
struct Block {
    Block* next;
    std::uint32_t cpus;
    bool sections;
};
static_assert(sizeof(Block) <= kAlign, "slots are aligned");

/// Slot 0 of a counter; null if it has no slots, or has them no longer.
inline char* slots_of(const Gate& gate) noexcept {
    char* base = gate.base.load(std::memory_order_acquire);
    return gate.noted.load(std::memory_order_relaxed) >> kPlaceShift == kDestroyed ? nullptr : base;
}

inline Block& block_of(char* base) noexcept { return *static_cast<Block*>(static_cast<void*>(base - kAlign)); }

inline Word& slot_word(char* base, std::size_t slot, unsigned shift, std::size_t word) noexcept {
    return static_cast<Word*>(static_cast<void*>(base + (slot << shift)))[word];
}

#if CORELINE_COUNTER_RSEQ
// Offsets in an rseq area: of `cpu_id`, negative while the thread is not registered, and of `rseq_cs`.
constexpr std::ptrdiff_t kCpuId = 4, kArmed = 8;
constexpr std::intptr_t kUnsettled = 0, kNone = 1;

// glibc from 2.35 on: where each thread has its rseq area, and how long that is; 0 if there is none. The names are
// ours, as <sys/rseq.h> may declare those of glibc in another way.
extern const std::ptrdiff_t rseq_offset __asm__("__rseq_offset") __attribute__((weak, visibility("default")));
extern const unsigned int rseq_size __asm__("__rseq_size") __attribute__((weak, visibility("default")));
/// The beginning of the program or shared object that this code is linked into.
extern const Elf64_Ehdr image_start __asm__("__ehdr_start") __attribute__((weak));

/// Volatile, as between two uses a fiber may go on in another thread.
inline char* thread_pointer() noexcept {
    char* pointer;
#if defined(__x86_64__)
    __asm__ volatile("{movq %%fs:0, %0|mov %0, qword ptr fs:0}" : "=r"(pointer));
#else
    __asm__ volatile("mrs %0, tpidr_el0" : "=r"(pointer));
#endif
    return pointer;
}

inline std::int32_t cpu_id(std::intptr_t area) noexcept {
    return *static_cast<const volatile std::int32_t*>(static_cast<void*>(thread_pointer() + area + kCpuId));
}

/// The C library's areas, if it has some.
inline std::intptr_t published_area() noexcept {
    if (&rseq_offset == nullptr || &rseq_size == nullptr || rseq_size == 0) return kNone;
    return rseq_offset % 32 == 0 ? rseq_offset : kNone;
}
#endif

#if CORELINE_COUNTER_SECTIONS
// What stands before an abort handler, as glibc registers it, and the number of the system call.
constexpr std::uint32_t kSignature = 0x53053053;
constexpr long kCall = 334;

/// Thread-local memory that this header shares with the Rust crate coreline-world if both are linked into one program.
/// Bytes 32 to 63 are the rseq area that is registered where the C library registers none. Bit 1 of word 16 says that
/// the kernel refused the thread, or that the thread ends.
alignas(32) inline __thread std::uint32_t rseq_block[20] __asm__("coreline_rseq_block_80") = {
    0, ~0U, 0, 0, 0, 0, ~0U, 0, 0, ~0U, 0, 0, 0, 0, ~0U, 0, 0, 0, 0, 0};
constexpr std::uint32_t kRefused = 2;

/// Bytes from the thread pointer to the area that sections run on.
inline std::atomic<std::intptr_t> section_area{kUnsettled};
/// 1 + the key whose destructor unregisters a thread.
inline std::atomic<std::uint32_t> exit_key{0};

inline bool set_round(std::uintptr_t round) noexcept {
    return pthread_setspecific(exit_key.load(std::memory_order_relaxed) - 1, reinterpret_cast<void*>(round)) == 0;
}

inline bool call_rseq(int flags) noexcept { return syscall(kCall, &rseq_block[8], 32, flags, kSignature) == 0; }

/// The key's destructor: unregisters the thread in the last of the four rounds of POSIX, before its memory goes.
inline void leave(void* round) {
    const auto count = reinterpret_cast<std::uintptr_t>(round);
    if (count < 4 && set_round(count + 1)) return;
    __atomic_fetch_or(&rseq_block[16], kRefused, __ATOMIC_RELAXED);
    call_rseq(1);
}

/// Registers the calling thread's own area, unless the kernel refused that before.
CORELINE_COUNTER_SLOW bool register_own(std::intptr_t area) noexcept {
    if (cpu_id(area) >= 0) return true;
    if ((__atomic_load_n(&rseq_block[16], __ATOMIC_RELAXED) & kRefused) != 0) return false;
    // The destructor first. EBUSY: a signal handler was faster. A filter that answers for the kernel sets no ID.
    if (set_round(1) && (call_rseq(0) || errno == EBUSY) && cpu_id(area) >= 0) return true;
    set_round(0);
    __atomic_fetch_or(&rseq_block[16], kRefused, __ATOMIC_RELAXED);
    return false;
}

/// Our own area, which only the main program has: that of a shared object would go with the object.
CORELINE_COUNTER_SLOW std::intptr_t own_area() noexcept {
    const auto start = reinterpret_cast<std::uintptr_t>(&image_start);
    if (start == 0 || getauxval(AT_PHDR) != start + image_start.e_phoff) return kNone;
    if (exit_key.load(std::memory_order_relaxed) == 0) {
        pthread_key_t key;
        if (pthread_key_create(&key, leave) != 0) return kNone;
        std::uint32_t none = 0;
        // A thread's value of a higher key may need memory, which a signal handler must not ask for.
        const bool usable = key < 32 && exit_key.compare_exchange_strong(none, key + 1, std::memory_order_relaxed);
        if (!usable) pthread_key_delete(key);
        if (exit_key.load(std::memory_order_relaxed) == 0) return kNone;
    }
    const auto area = reinterpret_cast<char*>(&rseq_block[8]) - thread_pointer();
    return register_own(area) ? area : kNone;
}

/// The area for the sections of the calling thread; `kNone` if it has to do without. The first call decides for all.
inline std::intptr_t settled_area() noexcept {
    // Acquire, and release below: a thread that sees our own area sees the key.
    std::intptr_t area = section_area.load(std::memory_order_acquire);
    if (area == kUnsettled) {
        const char* choice = std::getenv("CORELINE_RSEQ");
        const bool off = choice != nullptr && std::strcmp(choice, "off") == 0;
        std::intptr_t found = off ? kNone : published_area();
        if (found == kNone && !off) found = own_area();
        if (section_area.compare_exchange_strong(area, found, std::memory_order_acq_rel)) area = found;
    }
    if (area == kNone) return kNone;
    return cpu_id(area) >= 0 || (area != published_area() && register_own(area)) ? area : kNone;
}
#endif  // CORELINE_COUNTER_SECTIONS

/// One more than the highest number that a CPU can have, or a little more.
inline std::uint32_t cpu_limit() noexcept {
#if defined(__linux__)
    // The kernel returns the length of its masks.
    unsigned long mask[128];
    const long length = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
    if (length > 0) return static_cast<std::uint32_t>(length) * 8;
#endif
    return 256;
}

/// Where to add with atomic instructions: any slot is right, and that of the CPU is fastest. Without a CPU number, this
/// is a number of the thread.
inline std::uint32_t place() noexcept {
#if CORELINE_COUNTER_RSEQ
    const std::intptr_t area = published_area();
    if (area != kNone && cpu_id(area) >= 0) return static_cast<std::uint32_t>(cpu_id(area));
    const auto thread = reinterpret_cast<std::uintptr_t>(thread_pointer());
#else
    static thread_local char here;
    const auto thread = reinterpret_cast<std::uintptr_t>(&here);
#endif
    return static_cast<std::uint32_t>((std::uint64_t{thread} * 0x9e3779b97f4a7c15U) >> 32);
}

/// Adds to the slot of a place. A place that is none is spread over the slots.
inline void add_atomically(char* base, std::uint32_t place, unsigned shift, std::size_t word,
                           std::uint64_t delta) noexcept {
    const std::uint64_t cpus = block_of(base).cpus;
    const std::uint64_t slot = place < cpus ? place : place * cpus >> 32;
    slot_word(base, static_cast<std::size_t>(slot), shift, word).fetch_add(delta, std::memory_order_relaxed);
}

/// Slots of destroyed counters, by the shift of their stride. They are never unmapped: a thread that adds to a counter
/// while `exit` destroys it may be in a section.
inline std::atomic<Block*> spare[32]{};

/// Gives back a chain of blocks. It becomes the list if that is empty; otherwise the list becomes its end.
inline void give_back(Block* first, unsigned shift) noexcept {
    Block* list = nullptr;
    if (spare[shift].compare_exchange_strong(list, first, std::memory_order_release)) return;
    Block* last = first;
    while (last->next != nullptr) last = last->next;
    do {
        last->next = list;
    } while (!spare[shift].compare_exchange_weak(list, first, std::memory_order_release));
}

inline void give_back(char* base, unsigned shift) noexcept {
    block_of(base).next = nullptr;
    give_back(&block_of(base), shift);
}

/// Slot 0 of slots at zero; null if there is no memory.
inline char* take_slots(unsigned shift) noexcept {
    // Takes the whole list and gives the rest back, because the head alone could return with another successor.
    if (Block* block = spare[shift].exchange(nullptr, std::memory_order_acquire); block != nullptr) {
        if (block->next != nullptr) give_back(block->next, shift);
        char* base = reinterpret_cast<char*>(block) + kAlign;
        for (std::size_t word = 0; word < (std::size_t{block->cpus} << shift) / sizeof(Word); ++word) {
            Word& used = slot_word(base, 0, shift, word);
            // What is zero is only read, so that pages that no CPU used stay away.
            if (used.load(std::memory_order_relaxed) != 0) used.store(0, std::memory_order_relaxed);
        }
        return base;
    }
    const std::uint32_t cpus = cpu_limit();
    const std::size_t size = kAlign + (std::size_t{cpus} << shift);
#if defined(__linux__)
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    char* base = static_cast<char*>(memory) + kAlign;
#else
    void* memory = std::calloc(size + kAlign, 1);
    if (memory == nullptr) return nullptr;
    const auto at = reinterpret_cast<std::uintptr_t>(memory);
    char* base = static_cast<char*>(memory) + (kAlign - at % kAlign) + kAlign;
#endif
    block_of(base).cpus = cpus;
    return base;
}

/// Notes an addition to a counter without slots, and whether it is time to make some.
inline bool pays(Gate& gate, std::uint32_t place) noexcept {
    std::uint32_t seen = gate.noted.load(std::memory_order_relaxed);
    const std::uint32_t first = seen >> kPlaceShift, count = (seen + 1) & kNoted, here = place % kPlaces + 1;
    const std::uint32_t kept = first == 0 ? here : first;
    // An exchange, so that a counter that is destroyed meanwhile stays so.
    const std::uint32_t next = kept << kPlaceShift | count;
    if (first == kDestroyed || !gate.noted.compare_exchange_weak(seen, next, std::memory_order_relaxed)) return false;
    return first == kNoMemory ? count == 0 : kept != here || count >= kHot;
}

/// Gives the counter slots; slot 0, or null. Takes no lock, which a fork or a signal could leave locked.
CORELINE_COUNTER_SLOW char* make_slots(Gate& gate, unsigned shift, bool sections) noexcept {
    char* base = take_slots(shift);
    if (base == nullptr) {
        std::uint32_t seen = gate.noted.load(std::memory_order_relaxed);
        if (seen >> kPlaceShift != kDestroyed)
            gate.noted.compare_exchange_strong(seen, kNoMemory << kPlaceShift, std::memory_order_relaxed);
        return nullptr;
    }
    block_of(base).sections = sections;
    char* theirs = nullptr;
    if (gate.base.compare_exchange_strong(theirs, base, std::memory_order_acq_rel)) return base;
    give_back(base, shift);
    return theirs;
}

// The linker keeps one function of each name. Code with and without sections may be in one program, so the functions
// whose body depends on that have different names.
inline namespace CORELINE_COUNTER_BUILD {

#if CORELINE_COUNTER_SECTIONS
// The sections. Label 2: where to start over; 3 and 4: start and end; 5: the descriptor; 6: the abort handler, behind
// the signature. Arming is the last instruction before the start. `?` puts the pushed part into the function's group,
// so that the linker drops both or none. The last store disarms: the descriptor goes with its shared object.
#define CORELINE_COUNTER_DESCRIPTOR \
    ".pushsection __rseq_cs, \"aw?\"\n\t.balign 32\n5:\n\t.long 0, 0\n\t.quad 3b, 4b - 3b, 6f\n\t.popsection\n\t"
// The signature is the operand of an undefined instruction, `ud1`.
#define CORELINE_COUNTER_SECTION(TARGET, WORD)                                                               \
    __asm__ goto("2:\n\tleaq 5f(%%rip), %%rax\n\tmovq %%rax, %%fs:8(%[area])\n3:\n\t"                        \
                 "movl %%fs:4(%[area]), %%eax\n\tcmpl (%[gate]), %%eax\n\tjae %l[no_slot]\n\t"               \
                 "shlq %[shift], %%rax\n\taddq 8(%[gate]), %%rax\n\taddq %[delta], " TARGET "\n4:\n\t"       \
                 "movq $0, %%fs:8(%[area])\n\t" CORELINE_COUNTER_DESCRIPTOR                                  \
                 ".pushsection __rseq_failure, \"ax?\"\n\t.byte 0x0f, 0xb9, 0x3d\n\t.long %c[signature]\n6:\n\t" \
                 "jmp 2b\n\t.popsection\n\t"                                                                 \
                 :                                                                                           \
                 : [area] "r"(area), [gate] "r"(&gate), [delta] "er"(delta), [word] WORD,                    \
                   [shift] "i"(Shift), [signature] "i"(kSignature)                                           \
                 : "rax", "cc", "memory"                                                                     \
                 : no_slot)
#define CORELINE_COUNTER_TARGET "(%%rax, %[word], 8)"
#define CORELINE_COUNTER_FIRST "(%%rax)"

/// Adds in a section; `false`, without effect, if the thread has no slot.
template <unsigned Shift, bool Single>
CORELINE_COUNTER_INLINE bool add_here(Gate& gate, std::size_t word, std::uint64_t delta) noexcept {
    const std::intptr_t area = section_area.load(std::memory_order_relaxed);
    if (area == kUnsettled || area == kNone) return false;
    if constexpr (Single) {
        static_cast<void>(word);
        CORELINE_COUNTER_SECTION(CORELINE_COUNTER_FIRST, "i"(0));
    } else {
        CORELINE_COUNTER_SECTION(CORELINE_COUNTER_TARGET, "r"(word));
    }
    return true;
no_slot:
    *static_cast<volatile std::uint64_t*>(static_cast<void*>(thread_pointer() + area + kArmed)) = 0;
    return false;
}
#undef CORELINE_COUNTER_DESCRIPTOR
#undef CORELINE_COUNTER_SECTION
#undef CORELINE_COUNTER_TARGET
#undef CORELINE_COUNTER_FIRST
#else
template <unsigned, bool>
bool add_here(Gate&, std::size_t, std::uint64_t) noexcept {
    return false;
}
#endif  // CORELINE_COUNTER_SECTIONS

/// Adds without a section; `false`, without effect, if the thread can now use a section.
CORELINE_COUNTER_SLOW bool add_otherwise(Gate& gate, Word* shared, unsigned shift, std::size_t word,
                                         std::uint64_t delta) noexcept {
    const int error = errno;
    std::uint32_t slot = place();
    bool sections = false;
#if CORELINE_COUNTER_SECTIONS
    const std::intptr_t area = settled_area();
    sections = area != kNone;
    if (sections) slot = static_cast<std::uint32_t>(cpu_id(area));
    // What the process has chosen, even if this thread has to do without.
    const bool for_sections = section_area.load(std::memory_order_relaxed) != kNone;
#else
    constexpr bool for_sections = false;
#endif
    char* base = slots_of(gate);
    if (base == nullptr && pays(gate, slot)) base = make_slots(gate, shift, for_sections);
    errno = error;
    if (base != nullptr && !block_of(base).sections) {
        add_atomically(base, slot, shift, word, delta);
        return true;
    }
    if (base != nullptr && sections && slot < block_of(base).cpus) {
        // Release: a section that sees the limit sees the base. In each thread: a forked child may miss the first.
        // Sequentially consistent, as the destructor's stores: this thread sees `noted`, or the destructor closes last.
        gate.limit.store(block_of(base).cpus, std::memory_order_seq_cst);
        if (gate.noted.load(std::memory_order_seq_cst) >> kPlaceShift != kDestroyed) return false;
        gate.limit.store(0, std::memory_order_relaxed);
    }
    shared[word].fetch_add(delta, std::memory_order_relaxed);
    return true;
}

/// Out of the way of the section, which so needs few registers.
template <unsigned Shift, bool Single>
CORELINE_COUNTER_APART void add_slowly(Gate& gate, Word* shared, std::size_t word, std::uint64_t delta) noexcept {
    char* base = slots_of(gate);
    if (base != nullptr && !block_of(base).sections) return add_atomically(base, place(), Shift, word, delta);
    while (!add_otherwise(gate, shared, Shift, word, delta) && !add_here<Shift, Single>(gate, word, delta)) {
    }
}

}  // namespace CORELINE_COUNTER_BUILD

constexpr unsigned shift_for(std::size_t bytes) noexcept {
    unsigned shift = 7;
    while ((std::size_t{1} << shift) < bytes) ++shift;
    return shift;
}
static_assert(std::size_t{1} << shift_for(1) == kAlign, "slots lie on lines of their own");

}  // namespace detail

/// `N` signed counters that share the memory of each CPU. A sum wraps around.
template <std::size_t N>
class CounterSet {
    static_assert(N >= 1 && N <= 8192, "a set has 1 to 8192 counters");
    static constexpr unsigned kShift = detail::shift_for(N * sizeof(detail::Word));

public:
    constexpr CounterSet() noexcept = default;
    CounterSet(const CounterSet&) = delete;
    CounterSet& operator=(const CounterSet&) = delete;

    /// Only statics may be used afterwards: they keep their values, and are compact for good.
    ~CounterSet() noexcept {
        char* base = detail::slots_of(gate_);
        // In this order: a thread that opens the gate looks whether the counter is destroyed, and closes it again.
        gate_.noted.store(detail::kDestroyed << detail::kPlaceShift, std::memory_order_seq_cst);
        gate_.limit.store(0, std::memory_order_seq_cst);
        if (base == nullptr) return;
        for (std::size_t index = 0; index < N; ++index) shared_[index].fetch_add(in_slots(base, index));
        detail::give_back(base, kShift);
    }

    /// Adds to a counter. `index` must be below `N`. The addition is relaxed: it publishes no other writes.
    CORELINE_COUNTER_INLINE void add(std::size_t index, std::int64_t delta) noexcept {
        const auto amount = static_cast<std::uint64_t>(delta);
        if (!detail::add_here<kShift, N == 1>(gate_, index, amount))
            detail::add_slowly<kShift, N == 1>(gate_, shared_, index, amount);
    }

    CORELINE_COUNTER_INLINE void increment(std::size_t index) noexcept { add(index, 1); }

    /// The sum of all additions that happened before the call, and of some of those that other threads do meanwhile.
    std::int64_t sum(std::size_t index) const noexcept {
        char* base = detail::slots_of(gate_);
        const std::uint64_t shared = shared_[index].load(std::memory_order_relaxed);
        return static_cast<std::int64_t>(base == nullptr ? shared : shared + in_slots(base, index));
    }

    /// The sum of each counter, one after the other.
    std::array<std::int64_t, N> sums() const noexcept {
        std::array<std::int64_t, N> all{};
        for (std::size_t index = 0; index < N; ++index) all[index] = sum(index);
        return all;
    }

    Mode mode() const noexcept {
        char* base = detail::slots_of(gate_);
        if (base == nullptr) return Mode::compact;
        return detail::block_of(base).sections ? Mode::sections : Mode::atomic;
    }

private:
    static std::uint64_t in_slots(char* base, std::size_t index) noexcept {
        std::uint64_t total = 0;
        for (std::uint32_t slot = 0; slot < detail::block_of(base).cpus; ++slot)
            total += detail::slot_word(base, slot, kShift, index).load(std::memory_order_relaxed);
        return total;
    }

    detail::Gate gate_{{0}, {0}, {nullptr}};
    detail::Word shared_[N]{};
};

/// One signed counter.
class Counter {
public:
    CORELINE_COUNTER_INLINE void add(std::int64_t delta) noexcept { set_.add(0, delta); }
    CORELINE_COUNTER_INLINE void increment() noexcept { set_.add(0, 1); }
    std::int64_t sum() const noexcept { return set_.sum(0); }
    Mode mode() const noexcept { return set_.mode(); }

private:
    CounterSet<1> set_;
};

}  // namespace v1
}  // namespace coreline

#undef CORELINE_COUNTER_HIDDEN
#undef CORELINE_COUNTER_SHOWN
#undef CORELINE_COUNTER_INLINE
#undef CORELINE_COUNTER_APART
#undef CORELINE_COUNTER_SLOW
#undef CORELINE_COUNTER_RSEQ
#undef CORELINE_COUNTER_SECTIONS
#undef CORELINE_COUNTER_BUILD
#undef CORELINE_COUNTER_TSAN

#endif
