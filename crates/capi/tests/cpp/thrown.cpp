// An exception that leaves a function of the program ends the process: no call goes on as if it had returned.
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

static void run_on_worker(coreline_function_t function) {
    std::size_t count = 0;
    OK(coreline_workers_create(nullptr, &workers));
    OK(coreline_workers_cpus(workers, &cpu, 1, &count));
    coreline_workers_call(workers, cpu, function, nullptr);
}

static void throw_in_worker() { run_on_worker(throw_one); }
static void throw_in_own_call() { run_on_worker(call_itself); }

static void throw_value(void*, void*) { throw 1; }

static void throw_in_destroy() {
    int value = 0;
    coreline_versioned_t* versioned = nullptr;
    OK(coreline_versioned_create(&value, throw_value, nullptr, &versioned));
    coreline_versioned_update(versioned, &versioned);
}

static void throw_in_shootdown() {
    int must_refresh = 0;
    coreline_presence_t* presence = nullptr;
    coreline_member_t* member = nullptr;
    coreline_shot_t shot;
    OK(coreline_presence_create(0, 0, &presence));
    OK(coreline_presence_join(presence, &member));
    OK(coreline_member_enter(member, &must_refresh));
    coreline_member_shootdown(member, throw_one, nullptr, &shot, &must_refresh);
}

static coreline_cache_t* cache_of(int (*construct)(void*, void*), void (*destroy)(void*, void*)) {
    coreline_cache_options_t options{};
    coreline_cache_t* cache = nullptr;
    options.size = 8;
    options.construct = construct;
    options.destroy = destroy;
    OK(coreline_cache_create(&options, &cache));
    return cache;
}

static void throw_in_construct() {
    void* object = nullptr;
    coreline_cache_get(cache_of([](void*, void*) -> int { throw 1; }, nullptr), &object);
}

static void throw_in_cache_destroy() {
    void* object = nullptr;
    coreline_cache_t* cache = cache_of(nullptr, throw_value);
    OK(coreline_cache_get(cache, &object));
    coreline_cache_discard(cache, object);
}

int main() {
    for (void (*throws)() : {throw_in_worker, throw_in_own_call, throw_in_destroy, throw_in_shootdown,
                             throw_in_construct, throw_in_cache_destroy}) {
        int status = 0;
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(freopen("/dev/null", "w", stderr) != nullptr);
            try {
                throws();
            } catch (int) {
            }
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
    return 0;
}
