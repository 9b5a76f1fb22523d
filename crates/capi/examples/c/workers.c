/* Looks words up in tables that only one worker each may touch, so that no lookup takes a lock. */
#include <coreline.h>
#include <stdio.h>
#include <string.h>

CORELINE_CHECK_AT_LOAD;

enum { MOST = 1024, SLOTS = 64, LONGEST = 16 };

/* The table of each worker: a word's table is chosen by its hash. */
typedef struct {
    char words[SLOTS][LONGEST];
    unsigned counts[SLOTS];
} table_t;

static table_t tables[MOST];

/* What a call is about, and its result. It lies on the caller's stack, because the caller waits. */
typedef struct {
    table_t *table;
    const char *word;
    unsigned hash, count;
} request_t;

static unsigned hash(const char *word)
{
    unsigned hash = 5381;
    while (*word) {
        hash = hash * 33 + (unsigned char)*word++;
    }
    return hash;
}

/* On the worker: counts the word. */
static void count(void *argument)
{
    request_t *request = (request_t *)argument;
    unsigned slot = request->hash % SLOTS;
    table_t *table = request->table;
    while (table->counts[slot] > 0 && strcmp(table->words[slot], request->word) != 0) {
        slot = (slot + 1) % SLOTS;
    }
    snprintf(table->words[slot], LONGEST, "%s", request->word);
    request->count = ++table->counts[slot];
}

/* On any worker: a task. */
static void report(void *argument)
{
    printf("%s", (const char *)argument);
}

int main(void)
{
    static char end[] = "the end\n";
    const char *words[] = { "one", "two", "one", "three", "one", "two" };
    coreline_workers_t *workers = NULL;
    coreline_reply_t *reply = NULL;
    uint32_t cpus[MOST];
    size_t workers_count = 0, number;
    request_t request = { NULL, NULL, 0, 0 };
    coreline_code_t code = coreline_workers_create(NULL, &workers);
    if (code != CORELINE_OK || coreline_workers_cpus(workers, cpus, MOST, &workers_count) != CORELINE_OK) {
        fprintf(stderr, "no workers: %s\n", coreline_strerror(code));
        return 1;
    }
    if (workers_count > MOST) {
        workers_count = MOST;
    }
    for (number = 0; number < sizeof(words) / sizeof(words[0]); number++) {
        size_t worker;
        request.word = words[number];
        request.hash = hash(request.word);
        worker = request.hash % workers_count;
        request.table = &tables[worker];
        code = coreline_workers_call(workers, cpus[worker], count, &request);
        if (code != CORELINE_OK) {
            fprintf(stderr, "no call: %s\n", coreline_strerror(code));
            return 1;
        }
        printf("%s: %u\n", request.word, request.count);
    }
    /* A task: this thread may do something else, and then waits for at most a second. */
    if (coreline_workers_spawn(workers, report, end, &reply) != CORELINE_OK) {
        return 1;
    }
    code = coreline_reply_wait_by(reply, coreline_now() + 1000000000);
    if (code == CORELINE_TIMED_OUT && coreline_reply_cancel(reply) != CORELINE_OK) {
        /* It has begun: what it uses must stay. */
        code = coreline_reply_wait(reply);
    }
    return code == CORELINE_OK && request.count == 2 && coreline_workers_destroy(workers) == CORELINE_OK ? 0 : 1;
}
