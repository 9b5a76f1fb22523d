// What the test programs share.
#pragma once
#include <coreline/counter.hpp>

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitizer = true;
#else
constexpr bool kSanitizer = false;
#endif

#define CHECK(...)                                                                                    \
    do {                                                                                              \
        if (!(__VA_ARGS__)) {                                                                         \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #__VA_ARGS__);            \
            std::_Exit(1);                                                                            \
        }                                                                                             \
    } while (0)

#define CHECK_EQUAL(found, expected)                                                                  \
    do {                                                                                              \
        const auto left_ = static_cast<long long>(found), right_ = static_cast<long long>(expected);  \
        if (left_ != right_) {                                                                        \
            std::fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #found);                          \
            std::fprintf(stderr, "%lld, and not %lld\n", left_, right_);                              \
            std::_Exit(1);                                                                            \
        }                                                                                             \
    } while (0)

/// Runs `f` in a forked child; whether that ended with 0.
template <class F>
bool child_succeeds(F f) {
    const pid_t child = fork();
    if (child == 0) {
        f();
        _exit(0);
    }
    int status = -1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/// How slots have to work here, found out without the header.
inline coreline::Mode expected_mode() {
#if defined(__linux__) && defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && \
    !defined(CORELINE_COUNTER_ATOMICS)
    const char* choice = std::getenv("CORELINE_RSEQ");
    if (choice != nullptr && std::strcmp(choice, "off") == 0) return coreline::Mode::atomic;
    using coreline::detail::rseq_size;
    if (&rseq_size != nullptr && rseq_size > 0) {
        return coreline::Mode::sections;
    }
    const auto registers = [] {
        alignas(32) static std::uint32_t area[8] = {0, ~0U};
        const long result = syscall(SYS_rseq, area, sizeof area, 0, 0x53053053);
        // Other errors: the thread is registered already.
        _exit(result == 0 ? area[1] == ~0U : errno == ENOSYS || errno == EPERM);
    };
    if (child_succeeds(registers)) return coreline::Mode::sections;
#endif
    return coreline::Mode::atomic;
}
