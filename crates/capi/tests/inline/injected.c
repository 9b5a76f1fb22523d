/*
 * A signal at every instruction of an inline addition. Its handler adds to the same word, and moves the thread to
 * another CPU, or closes the way to the slots. In a section, the kernel has to send the thread to the abort handler.
 *
 * The instructions are found by single steps on an area that no kernel knows, where nothing is aborted. Prints how many
 * instructions each addition executes.
 */
#include "../c/check.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#if CORELINE_HAS_SECTIONS

/* A descriptor, as the kernel reads it. */
typedef struct {
    uint32_t version, flags;
    uint64_t start, length, abort;
} descriptor_t;
/* What the linker calls the beginning and the end of the section that debuggers look for. */
extern const descriptor_t __start___rseq_cs[], __stop___rseq_cs[];

enum { SET = 40, IN_SET = 35, WORDS = 12, WORD = 9 };

static coreline_counter_t *counter;
static coreline_counters_t *set;
static coreline_percpu_t *percpu;

static __attribute__((noinline)) void add_one(void)
{
    coreline_counter_add_inline(counter, 3);
    __asm__ volatile("");
}

static __attribute__((noinline)) void add_in_set(void)
{
    coreline_counters_add_inline(set, IN_SET, 5);
    __asm__ volatile("");
}

static __attribute__((noinline)) void add_word(void)
{
    coreline_percpu_add_inline(percpu, WORD, 7);
    __asm__ volatile("");
}

/* Takes the word, and leaves 0. */
static uint64_t taken;

static __attribute__((noinline)) void exchange_word(void)
{
    coreline_percpu_exchange_inline(percpu, WORD, 0, &taken);
    __asm__ volatile("");
}

static uint64_t loaded;

static __attribute__((noinline)) void load_word(void)
{
    coreline_percpu_load_inline(percpu, WORD, &loaded);
    __asm__ volatile("");
}

enum { MORE = 100 };
static uint64_t expected;
static coreline_code_t stored;

static __attribute__((noinline)) void store_word(void)
{
    stored = coreline_percpu_store_if_equal_inline(percpu, WORD, &expected, expected + MORE);
    __asm__ volatile("");
}

static void intrude_one(void) { OK(coreline_counter_add_inline(counter, 3)); }
static void intrude_set(void) { OK(coreline_counters_add(set, IN_SET, 5)); }
static void intrude_word(void) { OK(coreline_percpu_add_inline(percpu, WORD, 7)); }

static int64_t sum_one(void)
{
    int64_t sum = 0;
    OK(coreline_counter_sum(counter, &sum));
    return sum;
}

static int64_t sum_set(void)
{
    int64_t sum = 0;
    OK(coreline_counters_sum(set, IN_SET, &sum));
    return sum;
}

static int64_t sum_word(void)
{
    uint64_t sum = 0;
    OK(coreline_percpu_sum(percpu, WORD, &sum));
    return (int64_t)sum;
}

/* What the header reads in handles. */
static char *at(void *handle, size_t offset) { return (char *)handle + offset; }
static uint32_t *limit_one(void) { return (uint32_t *)(void *)at(counter, CORELINE_COUNTER_GATE); }
static uint32_t *limit_set(void)
{
    char *gates = *(char **)(void *)at(set, CORELINE_COUNTERS_GATES);
    return (uint32_t *)(void *)(gates + CORELINE_COUNTERS_GATE_SIZE);
}
static uint32_t *limit_word(void)
{
    char *lines = *(char **)(void *)at(percpu, CORELINE_PERCPU_LINES);
    return *(uint32_t **)(void *)(lines + CORELINE_PERCPU_LINE_SIZE);
}
static char *first_one(void) { return *(char **)(void *)(limit_one() + 2); }
static char *first_set(void) { return *(char **)(void *)(limit_set() + 2) + (IN_SET - 32) * 8; }
static char *first_word(void)
{
    char *lines = *(char **)(void *)at(percpu, CORELINE_PERCPU_LINES);
    return *(char **)(void *)(lines + CORELINE_PERCPU_LINE_SIZE + 8) + (WORD - 8) * 8;
}

typedef struct {
    const char *name;
    void (*add)(void), (*intrude)(void);
    int64_t (*sum)(void);
    uint32_t *(*limit)(void);
    char *(*first)(void);
    coreline_counter_t *const *handle;
    int64_t delta;
} case_t;

static int64_t in_slot(const case_t *it, uint32_t cpu)
{
    return *(volatile int64_t *)(void *)(it->first() + ((size_t)cpu << CORELINE_STRIDE_SHIFT));
}

/* An area that only looks like one. */
static struct {
    uint32_t cpu_id_start;
    int32_t cpu_id;
    const descriptor_t *armed;
    uint32_t flags, node;
    int32_t mm_cid, rest;
} pretence __attribute__((aligned(32)));

static intptr_t pretended(void)
{
    char *pointer;
    __asm__ volatile("movq %%fs:0, %0" : "=r"(pointer));
    return (char *)&pretence - pointer;
}

static intptr_t *area_of(const case_t *it) { return (intptr_t *)(void *)at(*it->handle, CORELINE_AREA); }

static const descriptor_t *section;

static void find_section(void (*f)(void))
{
    uintptr_t entry = (uintptr_t)f;
    uint32_t signature;
    section = NULL;
    for (const descriptor_t *it = __start___rseq_cs; it < __stop___rseq_cs; it++) {
        if (it->start - entry < 256 && (section == NULL || it->start < section->start)) {
            section = it;
        }
    }
    CHECK(section != NULL && section->version == 0 && section->flags == 0);
    memcpy(&signature, (const char *)section->abort - 4, sizeof(signature));
    CHECK(signature == CORELINE_RSEQ_SIGNATURE);
}

static int in_section(uintptr_t where) { return where - section->start < section->length; }

enum { MOST = 10000 };
static uintptr_t steps[MOST], found[MOST];
static size_t stepped;

#define NEXT(context) (((ucontext_t *)(context))->uc_mcontext.gregs[REG_RIP])

static void on_step(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)info;
    if (stepped < MOST) {
        steps[stepped++] = (uintptr_t)NEXT(context);
    }
}

static void handle(void (*handler)(int, siginfo_t *, void *))
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO;
    CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
}

/* The addresses of the instructions that `f` executes, from its first one to its return. */
static size_t instructions_of(void (*f)(void))
{
    size_t first = 0, count = 0;
    handle(on_step);
    stepped = 0;
    __asm__ volatile("pushfq\n\torq $0x100, (%%rsp)\n\tpopfq" : : : "cc", "memory");
    f();
    __asm__ volatile("pushfq\n\tandq $~0x100, (%%rsp)\n\tpopfq" : : : "cc", "memory");
    while (first < stepped && steps[first] != (uintptr_t)f) {
        first++;
    }
    CHECK(first < stepped);
    for (size_t step = first; step < stepped; step++) {
        found[count++] = steps[step];
        if (*(const uint8_t *)steps[step] == 0xc3) {
            return count;
        }
    }
    CHECK(!"a return");
    return 0;
}

static uintptr_t trap_at;
static uint8_t replaced;
static int traps, was_aborted, other_cpu = -1, closes;
static const case_t *now;

static void write_code(uintptr_t where, uint8_t code) { *(volatile uint8_t *)where = code; }

static void on_trap(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)info;
    write_code(trap_at, replaced);
    traps++;
    was_aborted = (uint64_t)NEXT(context) == section->abort;
    if (!was_aborted) {
        CHECK((uintptr_t)NEXT(context) == trap_at + 1);
        NEXT(context) = (greg_t)trap_at;
    }
    now->intrude();
    if (closes) {
        /* As a thread that stops the slots does, before its fence. */
        *now->limit() = 0;
    }
    if (other_cpu >= 0) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET((unsigned)other_cpu, &one);
        CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
    } else {
        pretence.cpu_id = 1;
    }
}

static void inject(uintptr_t where)
{
    uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE), page = where & ~(size - 1);
    handle(on_trap);
    CHECK(mprotect((void *)page, 2 * size, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    trap_at = where;
    replaced = *(const uint8_t *)where;
    traps = 0;
    write_code(where, 0xcc);
}

static void pin_to(int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((unsigned)cpu, &one);
    CHECK(sched_setaffinity(0, sizeof(one), &one) == 0 && sched_getcpu() == cpu);
}

/* Aborts at each instruction. `home` and `away` are CPUs, the same one if there is no other. */
static void abort_everywhere(const case_t *it, size_t count, int home, int away)
{
    int aborts = 0;
    for (size_t number = 0; number < count; number++) {
        int64_t sum, at_home, from_home;
        pin_to(home);
        now = it;
        other_cpu = away;
        sum = it->sum();
        at_home = in_slot(it, (uint32_t)home);
        from_home = in_slot(it, (uint32_t)away);
        inject(found[number]);
        it->add();
        CHECK(traps == 1 && was_aborted == in_section(found[number]));
        aborts += was_aborted;
        at_home = in_slot(it, (uint32_t)home) - at_home;
        from_home = in_slot(it, (uint32_t)away) - from_home;
        CHECK(at_home + (home == away ? 0 : from_home) == 2 * it->delta);
        CHECK(it->sum() - sum == 2 * it->delta);
        /* The intruder's addition is at home. One that was aborted follows its thread. */
        if (was_aborted && home != away) {
            CHECK(from_home == it->delta);
        }
        /* The library's function opens the way again. */
        CHECK(!closes || !was_aborted || *it->limit() > 0);
        it->intrude();
        CHECK(*it->limit() > 0);
    }
    CHECK(aborts >= 5);
    printf("%s: %d aborts\n", it->name, aborts);
}

/* The instructions of a function on an area that no kernel knows: each step would abort a section on the real one. */
static size_t pretended_steps(const case_t *it, void (*f)(void))
{
    const intptr_t area = *area_of(it);
    size_t count;
    *area_of(it) = pretended();
    pretence.cpu_id = 0;
    find_section(f);
    count = instructions_of(f);
    *area_of(it) = area;
    return count;
}

/* The mistake that aborts prevent: on an area that no kernel knows, a store to the word of CPU 0 after what an intruder
 * has added there. The addition is lost. */
static void lose(const case_t *it, void (*store)(void), size_t count)
{
    const intptr_t area = *area_of(it);
    uintptr_t last = 0;
    int64_t before;
    for (size_t number = 0; number < count; number++) {
        last = in_section(found[number]) ? found[number] : last;
    }
    *area_of(it) = pretended();
    pretence.cpu_id = 0;
    other_cpu = -1;
    taken = 0;
    before = in_slot(it, 0);
    expected = (uint64_t)before;
    inject(last);
    store();
    CHECK(traps == 1 && !was_aborted);
    CHECK(in_slot(it, 0) + (int64_t)taken - before == (store == store_word ? MORE : 0));
    *area_of(it) = area;
}

/* Stores to a word that has the expected value, aborted at each instruction. `is_alike`: the other CPU's word has this
 * value, too, so that a store that follows its thread succeeds. */
static void store_if_equal(const case_t *it, int home, int away, int is_alike)
{
    size_t count;
    int aborts = 0;
    now = it;
    /* Found on the way on which it stores. */
    expected = (uint64_t)in_slot(it, 0);
    count = pretended_steps(it, store_word);
    printf("store if equal: %zu instructions\n", count);
    lose(it, store_word, count);
    for (size_t number = 0; number < count; number++) {
        int64_t sum, at_home, there;
        uint64_t old = 0;
        pin_to(away);
        OK(coreline_percpu_exchange(percpu, WORD, is_alike ? 7000 : 1, &old));
        pin_to(home);
        OK(coreline_percpu_exchange(percpu, WORD, 7000, &old));
        other_cpu = away;
        sum = it->sum();
        at_home = in_slot(it, (uint32_t)home);
        there = in_slot(it, (uint32_t)away);
        expected = 7000;
        inject(found[number]);
        store_word();
        CHECK(traps == 1 && was_aborted == in_section(found[number]));
        aborts += was_aborted;
        CHECK(it->sum() - sum == it->delta + (stored == CORELINE_OK ? MORE : 0));
        CHECK(stored == CORELINE_OK ? expected == 7000 : stored == CORELINE_UNEQUAL && expected != 7000);
        if (was_aborted && home == away) {
            CHECK(stored == CORELINE_UNEQUAL && (int64_t)expected == at_home + it->delta);
        } else if (was_aborted) {
            CHECK(stored == (is_alike ? CORELINE_OK : CORELINE_UNEQUAL) && (is_alike || (int64_t)expected == there));
            CHECK(in_slot(it, (uint32_t)home) == at_home + it->delta);
        }
    }
    CHECK(aborts >= 7);
}

/* Exchanges, aborted at each instruction: nothing is lost, and nothing is there twice. And loads. */
static void take_and_load(const case_t *it, int home, int away)
{
    size_t count;
    now = it;
    count = pretended_steps(it, exchange_word);
    printf("exchange: %zu instructions\n", count);
    lose(it, exchange_word, count);
    for (size_t number = 0; number < count; number++) {
        int64_t before;
        pin_to(home);
        other_cpu = away;
        before = it->sum();
        inject(found[number]);
        taken = 0;
        exchange_word();
        CHECK(traps == 1 && was_aborted == in_section(found[number]));
        CHECK(it->sum() + (int64_t)taken - before == it->delta);
        it->intrude();
    }
    count = pretended_steps(it, load_word);
    printf("load: %zu instructions\n", count);
    for (size_t number = 0; number < count; number++) {
        int64_t before, there;
        pin_to(home);
        before = in_slot(it, (uint32_t)home);
        there = in_slot(it, (uint32_t)away);
        inject(found[number]);
        load_word();
        CHECK(traps == 1 && was_aborted == in_section(found[number]));
        /* After an abort, it is the word of the other CPU. */
        if (was_aborted) {
            CHECK((int64_t)loaded == (home == away ? before + it->delta : there));
        } else {
            CHECK((int64_t)loaded == before || (int64_t)loaded == there || (int64_t)loaded == before + it->delta);
        }
    }
}

static void test(const case_t *it, int home, int away)
{
    const intptr_t area = *area_of(it);
    const uint32_t limit = *it->limit();
    const int32_t cpus[] = { 0, (int32_t)limit - 1, (int32_t)limit, INT32_MAX, -1, -2 };
    size_t count;
    int inside = 0, stays = 0;
    uintptr_t last = 0;
    int64_t before;
    CHECK(limit > 1);
    *area_of(it) = pretended();
    pretence.mm_cid = 0;
    for (size_t number = 0; number < sizeof(cpus) / sizeof(cpus[0]); number++) {
        const int has_slot = cpus[number] >= 0 && cpus[number] < (int32_t)limit;
        int64_t there = 0;
        before = it->sum();
        pretence.cpu_id = cpus[number];
        if (has_slot) {
            there = in_slot(it, (uint32_t)cpus[number]);
        }
        it->add();
        CHECK(it->sum() - before == it->delta);
        CHECK(!has_slot || in_slot(it, (uint32_t)cpus[number]) - there == it->delta);
        /* Not armed behind the section, however the thread left it. */
        CHECK(pretence.armed == NULL);
    }
    /* By concurrency ID: the limit of CPUs is 0, and the other one counts. */
    it->limit()[0] = 0;
    it->limit()[1] = limit;
    pretence.cpu_id = 0;
    pretence.mm_cid = 1;
    before = in_slot(it, 1);
    it->add();
    CHECK(in_slot(it, 1) - before == it->delta && pretence.armed == NULL);
    /* A thread that is not registered has none, though it seems to. The library's section adds to the slot of the real
     * ID, which may be this one, too, and may change. */
    pretence.cpu_id = -1;
    for (int tries = 0; tries < 100 && !stays; tries++) {
        pretence.mm_cid = tries % 2;
        before = in_slot(it, (uint32_t)pretence.mm_cid);
        it->add();
        stays = in_slot(it, (uint32_t)pretence.mm_cid) == before;
        it->limit()[0] = 0;
    }
    CHECK(stays);
    it->limit()[1] = 0;
    it->limit()[0] = limit;

    pretence.cpu_id = 0;
    find_section(it->add);
    count = instructions_of(it->add);
    printf("%s: %zu instructions\n", it->name, count);
    for (size_t number = 0; number < count; number++) {
        if (in_section(found[number])) {
            inside++;
            last = found[number];
        }
    }
    CHECK(inside >= 5);
    /* The mistake that the next part would find: without an abort the addition stays where it began. */
    now = it;
    other_cpu = -1;
    before = in_slot(it, 0);
    inject(last);
    it->add();
    CHECK(traps == 1 && !was_aborted);
    CHECK(in_slot(it, 0) - before >= it->delta);
    *area_of(it) = area;
    for (closes = 0; closes < 2; closes++) {
        abort_everywhere(it, count, home, home);
        abort_everywhere(it, count, home, away);
    }
    closes = 0;
}

int main(int argc, char **arguments)
{
    const case_t cases[] = {
        { "counter", add_one, intrude_one, sum_one, limit_one, first_one, &counter, 3 },
        { "set", add_in_set, intrude_set, sum_set, limit_set, first_set, (coreline_counter_t **)(void *)&set, 5 },
        { "word", add_word, intrude_word, sum_word, limit_word, first_word,
          (coreline_counter_t **)(void *)&percpu, 7 },
    };
    int home = -1, away = -1;
    cpu_set_t all;
    OK(coreline_check());
    OK(coreline_counter_create(NULL, 0, &counter));
    OK(coreline_counters_create(NULL, SET, &set));
    OK(coreline_percpu_create(NULL, WORDS, &percpu));
    CHECK(sched_getaffinity(0, sizeof(all), &all) == 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET((unsigned)cpu, &all)) {
            home = home < 0 ? cpu : home;
            away = cpu;
        }
    }
    /* Slots for both CPUs, and open ways to them. */
    for (int time = 0; time < 1000; time++) {
        pin_to(time % 2 ? home : away);
        add_one();
        add_in_set();
        add_word();
    }
    if (*limit_one() == 0) {
        CHECK(argc == 2 && strcmp(arguments[1], "atomics") == 0);
        puts("no sections\nok");
        return 0;
    }
    CHECK(argc == 1);
    for (size_t number = 0; number < sizeof(cases) / sizeof(cases[0]); number++) {
        test(&cases[number], home, away);
    }
    take_and_load(&cases[2], home, home);
    take_and_load(&cases[2], home, away);
    store_if_equal(&cases[2], home, home, 0);
    store_if_equal(&cases[2], home, away, 0);
    store_if_equal(&cases[2], home, away, 1);
    puts("ok");
    return 0;
}

#else

int main(void)
{
    puts("no sections\nok");
    return 0;
}

#endif
