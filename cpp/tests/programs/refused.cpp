// A filter refuses registrations. Where the C library registers its threads it would end the process, so this is run
// with GLIBC_TUNABLES=glibc.pthread.rseq=0.
//
//     refused all       before the first addition, by an error
//     refused pretend   the same, by an answer that says it is done
//     refused some      in some threads, after the process has chosen sections
#include "check.hpp"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <string>
#include <thread>
#include <vector>

namespace {

coreline::Counter counter;
coreline::CounterSet<2> set;

/// Answers the calling thread's later registrations with this error; 0: with success.
void refuse(unsigned error) {
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rseq, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{sizeof program / sizeof *program, program};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

void add(int times) {
    for (int i = 0; i < times; ++i) {
        errno = 77;
        counter.increment();
        set.add(1, -2);
        if (errno != 77) std::_Exit(3);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    using coreline::detail::rseq_size;
    const bool is_published = &rseq_size != nullptr && rseq_size > 0;
    coreline::Mode mode = is_published ? expected_mode() : coreline::Mode::atomic;
    if (what == "all") refuse(ENOSYS);
    if (what == "pretend") refuse(0);
    if (what == "some") {
        mode = expected_mode();
        add(1000);
    }
    std::vector<std::thread> threads;
    for (int number = 0; number < 8; ++number)
        threads.emplace_back([&, number] {
            if (what == "some" && number % 2 == 1) refuse(number % 4 == 1 ? EPERM : 0);
            add(50'000);
        });
    for (auto& thread : threads) thread.join();
    const int total = 8 * 50'000 + (what == "some" ? 1000 : 0);
    CHECK_EQUAL(counter.sum(), total);
    CHECK_EQUAL(set.sum(1), -2 * total);
    CHECK_EQUAL(set.sum(0), 0);
    CHECK(counter.mode() == mode && set.mode() == mode);
    if (what == "some") {
        // Refused threads make slots as the process has chosen, and use the shared word beside.
        coreline::Counter theirs;
        std::thread([&] {
            refuse(EPERM);
            for (int i = 0; i < 1000; ++i) theirs.increment();
        }).join();
        for (int i = 0; i < 1000; ++i) theirs.increment();
        CHECK(theirs.mode() == mode);
        CHECK_EQUAL(theirs.sum(), 2000);
    }
    std::puts("ok");
}
