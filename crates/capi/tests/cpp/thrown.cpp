// An exception that leaves a function of a worker ends the process: no call goes on as if it had returned.
#include <csignal>
#include <cstdint>
#include <initializer_list>
#include <sys/wait.h>
#include <unistd.h>

#include "../c/check.h"

static coreline_workers_t* workers;
static std::uint32_t cpu;

static void throw_one(void*) { throw 1; }

// As the worker of the CPU that it calls.
static void call_itself(void*) { coreline_workers_call(workers, cpu, throw_one, nullptr); }

int main() {
    for (coreline_function_t function : {throw_one, call_itself}) {
        int status = 0;
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            std::size_t count = 0;
            CHECK(freopen("/dev/null", "w", stderr) != nullptr);
            OK(coreline_workers_create(nullptr, &workers));
            OK(coreline_workers_cpus(workers, &cpu, 1, &count));
            try {
                coreline_workers_call(workers, cpu, function, nullptr);
            } catch (int) {
            }
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
    return 0;
}
