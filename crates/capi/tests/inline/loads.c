/*
 * Loads a plugin with inline additions, adds, and unloads it, many times. A signal follows, at which the kernel reads
 * the descriptor to which the thread's rseq area points. If that was in the plugin, the kernel ends the process.
 */
#include "../c/check.h"

#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

typedef coreline_code_t (*add_t)(const coreline_counter_t *, const coreline_percpu_t *);

static volatile sig_atomic_t handled;

static void handle(int signal)
{
    (void)signal;
    handled = handled + 1;
}

int main(int count, char **arguments)
{
    enum { LOADS = 50, TIMES = 1000 };
    coreline_counter_t *counter = NULL;
    coreline_percpu_t *percpu = NULL;
    int64_t sum = 0;
    uint64_t words = 0;
    CHECK(count == 2 && signal(SIGUSR1, handle) != SIG_ERR);
    OK(coreline_counter_create(NULL, 0, &counter));
    OK(coreline_percpu_create(NULL, 1, &percpu));
    for (int load = 0; load < LOADS; load++) {
        add_t add;
        void *found, *plugin = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
        CHECK(plugin != NULL);
        found = dlsym(plugin, "plugin_add");
        CHECK(found != NULL);
        memcpy(&add, &found, sizeof(add));
        for (int time = 0; time < TIMES; time++) {
            OK(add(counter, percpu));
        }
        CHECK(dlclose(plugin) == 0);
        CHECK(dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) == NULL);
        CHECK(raise(SIGUSR1) == 0);
        usleep(10);
    }
    OK(coreline_counter_sum(counter, &sum));
    OK(coreline_percpu_sum(percpu, 0, &words));
    CHECK(handled == LOADS && sum == LOADS * TIMES && words == LOADS * TIMES);
    puts("ok");
    return 0;
}
