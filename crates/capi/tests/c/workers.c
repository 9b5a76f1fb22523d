/* Calls, tasks and replies. */
#include "check.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static coreline_workers_t *workers;
static uint32_t cpus[1024];
static size_t count;

static void add(void *sum) { __atomic_fetch_add((int *)sum, 1, __ATOMIC_RELAXED); }

static void note_cpu(void *cpu) { OK(coreline_workers_current(workers, (uint32_t *)cpu)); }

/* Waits until the main thread lets it go on. */
typedef struct {
    int has_begun, may_end;
} gate_t;

static void wait_at(void *argument)
{
    gate_t *gate = (gate_t *)argument;
    __atomic_store_n(&gate->has_begun, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&gate->may_end, __ATOMIC_ACQUIRE)) {
        usleep(100);
    }
}

static void until_begun(gate_t *gate)
{
    while (!__atomic_load_n(&gate->has_begun, __ATOMIC_ACQUIRE)) {
        usleep(100);
    }
}

static void let_go(gate_t *gate) { __atomic_store_n(&gate->may_end, 1, __ATOMIC_RELEASE); }

static void calls(void)
{
    int sum = 0;
    uint32_t cpu = 0;
    coreline_mask_t *mask = NULL;
    coreline_worker_stats_t stats;
    uint64_t ran = 0;
    for (size_t number = 0; number < count; number++) {
        OK(coreline_workers_call(workers, cpus[number], add, &sum));
        OK(coreline_workers_call(workers, cpus[number], note_cpu, &cpu));
        CHECK(cpu == cpus[number]);
    }
    CHECK(sum == (int)count);
    OK(coreline_workers_call_many(workers, NULL, add, &sum));
    CHECK(sum == 2 * (int)count);
    OK(coreline_mask_create(&mask));
    OK(coreline_workers_call_many(workers, mask, add, &sum));
    OK(coreline_mask_set(mask, cpus[count - 1]));
    OK(coreline_workers_call_many(workers, mask, add, &sum));
    CHECK(sum == 2 * (int)count + 1);
    OK(coreline_mask_destroy(mask));
    for (size_t number = 0; number < count; number++) {
        OK(coreline_workers_stats(workers, cpus[number], &stats));
        ran += stats.calls;
    }
    CHECK(ran == 3 * count + 1);
}

/* The mailbox holds one call. The worker takes it when it begins. */
static void busy_mailbox(void)
{
    int sum = 0;
    gate_t gate = { 0, 0 };
    coreline_reply_t *first = NULL, *second = NULL;
    OK(coreline_workers_call_async(workers, cpus[0], wait_at, &gate, &first));
    until_begun(&gate);
    OK(coreline_workers_call_async(workers, cpus[0], add, &sum, &second));
    RETURNS(CORELINE_BUSY, coreline_workers_try_call(workers, cpus[0], add, &sum));
    let_go(&gate);
    OK(coreline_reply_wait(first));
    OK(coreline_reply_wait(second));
    CHECK(sum == 1);
}

static void replies(void)
{
    int sum = 0;
    gate_t gate = { 0, 0 };
    coreline_reply_t *reply = NULL, *waits = NULL, *task = NULL, *any = NULL;
    OK(coreline_workers_call_async(workers, cpus[0], wait_at, &gate, &reply));
    until_begun(&gate);
    OK(coreline_workers_call_async(workers, cpus[0], add, &sum, &waits));
    OK(coreline_workers_spawn_on(workers, cpus[0], add, &sum, &task));
    RETURNS(CORELINE_BUSY, coreline_reply_try_wait(reply));
    RETURNS(CORELINE_TIMED_OUT, coreline_reply_wait_by(reply, soon()));
    RETURNS(CORELINE_TIMED_OUT, coreline_reply_wait_by(reply, 0));
    /* It has begun, and the others have not. */
    RETURNS(CORELINE_UNCHANGED, coreline_reply_cancel(reply));
    OK(coreline_reply_cancel(waits));
    OK(coreline_reply_cancel(task));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_reply_cancel(waits));
    let_go(&gate);
    OK(coreline_reply_wait_by(reply, late()));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_reply_wait(reply));
    /* What comes behind the cancelled ones runs, and they do not. */
    OK(coreline_workers_spawn_on(workers, cpus[0], add, &sum, &task));
    OK(coreline_reply_wait(task));
    CHECK(sum == 1);
    OK(coreline_workers_spawn(workers, add, &sum, &any));
    while (coreline_reply_try_wait(any) == CORELINE_BUSY) {
        usleep(10);
    }
    RETURNS(CORELINE_ERROR_HANDLE, coreline_reply_detach(any));
    OK(coreline_workers_spawn(workers, add, &sum, &any));
    OK(coreline_reply_detach(any));
    OK(coreline_workers_spawn(workers, add, &sum, NULL));
    OK(coreline_workers_call_async(workers, cpus[0], add, &sum, NULL));
    while (__atomic_load_n(&sum, __ATOMIC_ACQUIRE) < 5) {
        usleep(10);
    }
}

static void *wait_for(void *reply)
{
    coreline_code_t code;
    do {
        code = coreline_reply_wait((coreline_reply_t *)reply);
    } while (code == CORELINE_BUSY);
    OK(code);
    return NULL;
}

/* Another thread waits. Both use one reply, so one of them is told. */
static void two_waiters(void)
{
    pthread_t thread;
    gate_t gate = { 0, 0 };
    coreline_reply_t *reply = NULL;
    coreline_code_t code;
    OK(coreline_workers_call_async(workers, cpus[0], wait_at, &gate, &reply));
    CHECK(pthread_create(&thread, NULL, wait_for, reply) == 0);
    until_begun(&gate);
    do {
        code = coreline_reply_cancel(reply);
        CHECK(code == CORELINE_BUSY || code == CORELINE_UNCHANGED);
    } while (code != CORELINE_BUSY);
    let_go(&gate);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* On a worker: what would never end, and what is allowed. */
static void on_worker(void *unused)
{
    int sum = 0, is_needed = 0;
    uint32_t cpu = 0, served = 7;
    coreline_reply_t *reply = NULL;
    (void)unused;
    OK(coreline_workers_current(workers, &cpu));
    OK(coreline_workers_call(workers, cpu, add, &sum));
    CHECK(sum == 1);
    OK(coreline_workers_call_many(workers, NULL, add, &sum));
    CHECK(sum == 1 + (int)count);
    RETURNS(CORELINE_ERROR_DEADLOCK, coreline_workers_destroy(workers));
    OK(coreline_workers_spawn_on(workers, cpu, add, &sum, &reply));
    OK(coreline_workers_need_resched(workers, &is_needed));
    CHECK(is_needed == 1);
    RETURNS(CORELINE_ERROR_DEADLOCK, coreline_reply_wait(reply));
    RETURNS(CORELINE_ERROR_DEADLOCK, coreline_reply_wait_by(reply, late()));
    RETURNS(CORELINE_TIMED_OUT, coreline_reply_wait_by(reply, soon()));
    OK(coreline_reply_cancel(reply));
    /* A call to itself waits in the mailbox, until it is served. */
    OK(coreline_workers_call_async(workers, cpu, add, &sum, &reply));
    while (coreline_reply_try_wait(reply) == CORELINE_BUSY) {
        OK(coreline_workers_serve(workers, &served));
    }
    CHECK(served == 1 && sum == 2 + (int)count);
}

static void *call_all(void *sum)
{
    for (int time = 0; time < 2000; time++) {
        OK(coreline_workers_call(workers, cpus[(size_t)time % count], add, sum));
    }
    return NULL;
}

static void from_threads(void)
{
    static int sum;
    pthread_t threads[THREADS];
    for (size_t number = 0; number < THREADS; number++) {
        CHECK(pthread_create(&threads[number], NULL, call_all, &sum) == 0);
    }
    for (size_t number = 0; number < THREADS; number++) {
        CHECK(pthread_join(threads[number], NULL) == 0);
    }
    CHECK(sum == THREADS * 2000);
}

static void misuse(void)
{
    int sum = 0, is_needed = 7;
    uint32_t cpu = 7, served = 7;
    size_t number = 7;
    coreline_workers_t *other = NULL;
    coreline_mask_t *mask = NULL;
    coreline_reply_t *reply = NULL;
    coreline_worker_stats_t stats;
    coreline_workers_options_t options;
    memset(&options, 0, sizeof(options));
    RETURNS(CORELINE_ERROR_NULL, coreline_workers_create(NULL, NULL));
    RETURNS(CORELINE_ERROR_NULL, coreline_workers_call(NULL, cpus[0], add, &sum));
    RETURNS(CORELINE_ERROR_NULL, coreline_workers_call(workers, cpus[0], NULL, &sum));
    RETURNS(CORELINE_ERROR_NULL, coreline_reply_wait(NULL));
    RETURNS(CORELINE_ERROR_NULL, coreline_workers_serve(workers, NULL));
    RETURNS(CORELINE_ERROR_NULL, coreline_workers_cpus(workers, NULL, 1, &number));
    RETURNS(CORELINE_ERROR_NO_WORKER, coreline_workers_call(workers, 4000000000u, add, &sum));
    RETURNS(CORELINE_ERROR_NO_WORKER, coreline_workers_spawn_on(workers, 4000000000u, add, &sum, &reply));
    RETURNS(CORELINE_ERROR_NO_WORKER, coreline_workers_stats(workers, 4000000000u, &stats));
    RETURNS(CORELINE_ERROR_NO_WORKER, coreline_workers_current(workers, &cpu));
    CHECK(cpu == 7 && reply == NULL);
    OK(coreline_workers_serve(workers, &served));
    OK(coreline_workers_need_resched(workers, &is_needed));
    CHECK(served == 0 && is_needed == 0 && sum == 0);
    OK(coreline_mask_create(&mask));
    options.cpus = mask;
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_workers_create(&options, &other));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_workers_call((coreline_workers_t *)(void *)mask, 0, add, &sum));
    OK(coreline_mask_set(mask, cpus[0]));
    options.polling = CORELINE_WORKERS_NEVER_POLL;
    options.name = "a name that is cut";
    OK(coreline_workers_create(&options, &other));
    OK(coreline_workers_cpus(other, NULL, 0, &number));
    CHECK(number == 1);
    if (count > 1) {
        RETURNS(CORELINE_ERROR_NO_WORKER, coreline_workers_call(other, cpus[1], add, &sum));
        OK(coreline_mask_set(mask, cpus[1]));
        RETURNS(CORELINE_ERROR_NO_WORKER, coreline_workers_call_many(other, mask, add, &sum));
    }
    OK(coreline_workers_call(other, cpus[0], add, &sum));
    OK(coreline_workers_close(other));
    RETURNS(CORELINE_ERROR_CLOSED, coreline_workers_call(other, cpus[0], add, &sum));
    RETURNS(CORELINE_ERROR_CLOSED, coreline_workers_spawn(other, add, &sum, &reply));
    RETURNS(CORELINE_ERROR_CLOSED, coreline_workers_call_async(other, cpus[0], add, &sum, NULL));
    RETURNS(CORELINE_ERROR_CLOSED, coreline_workers_call_many(other, NULL, add, &sum));
    CHECK(sum == 1 && reply == NULL);
    OK(coreline_workers_destroy(other));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_workers_destroy(other));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_workers_call(other, cpus[0], add, &sum));
    OK(coreline_mask_destroy(mask));
}

static void forks(void)
{
    int status = 0, sum = 0;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        RETURNS(CORELINE_ERROR_FORKED, coreline_workers_call(workers, cpus[0], add, &sum));
        RETURNS(CORELINE_ERROR_FORKED, coreline_workers_spawn(workers, add, &sum, NULL));
        /* It has no threads to wait for. */
        OK(coreline_workers_destroy(workers));
        RETURNS(CORELINE_ERROR_HANDLE, coreline_workers_close(workers));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* On a worker. The child must not return, as coreline(7) says. */
static void fork_here(void *unused)
{
    int status = 0, sum = 0, is_needed = 7;
    uint32_t cpu = 7, served = 7;
    pid_t child = fork();
    (void)unused;
    CHECK(child >= 0);
    if (child == 0) {
        RETURNS(CORELINE_ERROR_NO_WORKER, coreline_workers_current(workers, &cpu));
        RETURNS(CORELINE_ERROR_FORKED, coreline_workers_call(workers, cpus[0], add, &sum));
        OK(coreline_workers_serve(workers, &served));
        OK(coreline_workers_need_resched(workers, &is_needed));
        CHECK(cpu == 7 && sum == 0 && served == 0 && is_needed == 0);
        OK(coreline_workers_destroy(workers));
        OK(coreline_workers_create(NULL, &workers));
        OK(coreline_workers_call(workers, cpus[0], add, &sum));
        OK(coreline_workers_destroy(workers));
        CHECK(sum == 1);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    OK(coreline_workers_current(workers, &cpu));
    CHECK(cpu == cpus[0]);
}

static void leave(void *unused)
{
    (void)unused;
    pthread_exit(NULL);
}

/* As the worker of the CPU that it calls. */
static void call_itself(void *unused)
{
    uint32_t cpu = 0;
    OK(coreline_workers_current(workers, &cpu));
    coreline_workers_call(workers, cpu, leave, unused);
}

/* A function that does not return ends the process: no call goes on as if it had. */
static void leaving(int on_itself)
{
    int status = 0;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        uint32_t cpu = 0;
        size_t number = 0;
        CHECK(freopen("/dev/null", "w", stderr) != NULL);
        OK(coreline_workers_create(NULL, &workers));
        OK(coreline_workers_cpus(workers, &cpu, 1, &number));
        coreline_workers_call(workers, cpu, on_itself ? call_itself : leave, NULL);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* What was accepted still runs, and may use the workers until it ends. */
static gate_t last = { 0, 0 };
static int last_sum;

static void at_the_end(void *unused)
{
    (void)unused;
    wait_at(&last);
    /* Another thread destroys the workers now. */
    for (int time = 0; time < 100; time++) {
        coreline_code_t code = coreline_workers_call(workers, cpus[0], add, &last_sum);
        CHECK(code == CORELINE_OK || code == CORELINE_ERROR_CLOSED);
        code = coreline_workers_spawn(workers, add, &last_sum, NULL);
        CHECK(code == CORELINE_OK || code == CORELINE_ERROR_CLOSED);
        usleep(100);
    }
}

static void *end(void *unused)
{
    (void)unused;
    OK(coreline_workers_destroy(workers));
    return NULL;
}

static void destruction(void)
{
    pthread_t thread;
    coreline_reply_t *reply = NULL, *ready = NULL;
    OK(coreline_workers_spawn_on(workers, cpus[0], at_the_end, NULL, &reply));
    OK(coreline_workers_spawn_on(workers, cpus[0], add, &last_sum, &ready));
    until_begun(&last);
    CHECK(pthread_create(&thread, NULL, end, NULL) == 0);
    let_go(&last);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(last_sum > 100);
    OK(coreline_reply_try_wait(reply));
    OK(coreline_reply_wait(ready));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_workers_close(workers));
}

int main(void)
{
    for (int on_itself = 0; on_itself < 2; on_itself++) {
        leaving(on_itself);
    }
    OK(coreline_workers_create(NULL, &workers));
    OK(coreline_workers_cpus(workers, cpus, 1024, &count));
    CHECK(count > 0 && count <= 1024);
    calls();
    busy_mailbox();
    replies();
    two_waiters();
    OK(coreline_workers_call(workers, cpus[0], on_worker, NULL));
    from_threads();
    misuse();
    forks();
    OK(coreline_workers_call(workers, cpus[0], fork_here, NULL));
    destruction();
    return 0;
}
