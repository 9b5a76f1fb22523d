// The C++ half of a process with counters of both kinds: see tests/beside.rs.
#include <coreline/counter.hpp>

namespace {
namespace detail = coreline::detail;
coreline::Counter counter;
}  // namespace

extern "C" void beside_add(std::int64_t delta) { counter.add(delta); }
extern "C" std::int64_t beside_sum() { return counter.sum(); }
extern "C" int beside_mode() { return static_cast<int>(counter.mode()); }
/// What was added without a slot.
extern "C" std::uint64_t beside_shared() {
    static_assert(sizeof counter == sizeof(detail::Gate) + sizeof(detail::Word), "the word lies behind the gate");
    return reinterpret_cast<const detail::Word*>(reinterpret_cast<const detail::Gate*>(&counter) + 1)->load();
}
#if defined(__x86_64__)
extern "C" std::uint32_t beside_signature() { return detail::kSignature; }
extern "C" std::intptr_t beside_cpu_id_offset() { return detail::kCpuId; }
extern "C" std::intptr_t beside_armed_offset() { return detail::kArmed; }
/// The CPU of the calling thread, read in the area that this header registers; negative without registration.
extern "C" std::int32_t beside_own_cpu() { return static_cast<std::int32_t>(detail::rseq_block[9]); }
extern "C" std::uint32_t beside_marks() { return detail::rseq_block[16]; }
#endif
