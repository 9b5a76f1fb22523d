/* Signal handlers that interrupt calls, and call what their pages allow. */
#include "check.h"

#include <signal.h>

enum { SIGNALS = 100 };

static coreline_versioned_t *versioned;
static coreline_reader_t *reader;
static coreline_biased_rwlock_t lock = CORELINE_BIASED_RWLOCK_INIT;
static coreline_domain_t *domain;
static coreline_local_t *words;
static int values[2];
static int handled, has_read;

static void handle(int number)
{
    void *value = NULL;
    uint64_t sum = 0;
    coreline_code_t code;
    (void)number;
    OK(coreline_reader_enter(reader, &value));
    OK(coreline_reader_enter(reader, &value));
    CHECK(value == &values[0] || value == &values[1]);
    OK(coreline_reader_leave(reader));
    OK(coreline_reader_get(reader, &value));
    CHECK(value == &values[0] || value == &values[1]);
    OK(coreline_reader_leave(reader));
    code = coreline_biased_rwlock_try_read(&lock);
    if (code == CORELINE_OK) {
        has_read++;
        OK(coreline_biased_rwlock_read_unlock(&lock));
    } else {
        CHECK(code == CORELINE_BUSY);
    }
    OK(coreline_local_add(words, 0, 1));
    OK(coreline_local_sum(words, 1, &sum));
    __atomic_fetch_add(&handled, 1, __ATOMIC_RELEASE);
}

/* One signal after another, each to the thread that is the argument. */
static void *send(void *thread)
{
    for (int sent = 0; sent < SIGNALS; sent++) {
        CHECK(pthread_kill(*(pthread_t *)thread, SIGUSR1) == 0);
        while (__atomic_load_n(&handled, __ATOMIC_ACQUIRE) <= sent) {
            sched_yield();
        }
    }
    return NULL;
}

int main(void)
{
    pthread_t self = pthread_self(), sender;
    struct sigaction action;
    uint64_t sum = 0, added = 0;
    void *value = NULL;
    OK(coreline_prepare());
    OK(coreline_versioned_create(&values[0], NULL, NULL, &versioned));
    OK(coreline_reader_create(versioned, &reader));
    OK(coreline_reader_enter(reader, &value));
    OK(coreline_reader_leave(reader));
    OK(coreline_domain_create(NULL, CORELINE_DOMAIN_DEFAULT, &domain));
    OK(coreline_local_create(domain, 2, &words));
    memset(&action, 0, sizeof(action));
    action.sa_handler = handle;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(pthread_create(&sender, NULL, send, &self) == 0);
    for (int time = 0; __atomic_load_n(&handled, __ATOMIC_ACQUIRE) < SIGNALS; time++) {
        coreline_lease_t lease = CORELINE_LEASE_INIT;
        OK(coreline_versioned_update(versioned, &values[time % 2]));
        OK(coreline_biased_rwlock_read(&lock));
        OK(coreline_biased_rwlock_read(&lock));
        OK(coreline_biased_rwlock_read_unlock(&lock));
        OK(coreline_biased_rwlock_read_unlock(&lock));
        if (time % 1024 == 0) {
            OK(coreline_biased_rwlock_write(&lock));
            OK(coreline_biased_rwlock_write_unlock(&lock));
        }
        OK(coreline_local_add(words, 1, 1));
        added++;
        OK(coreline_domain_lease(domain, &lease));
        OK(coreline_domain_return(domain, &lease));
    }
    CHECK(pthread_join(sender, NULL) == 0);
    CHECK(has_read > 0);
    OK(coreline_local_sum(words, 0, &sum));
    CHECK(sum == SIGNALS);
    OK(coreline_local_sum(words, 1, &sum));
    CHECK(sum == added);
    OK(coreline_local_destroy(words));
    OK(coreline_domain_destroy(domain));
    OK(coreline_reader_destroy(reader));
    OK(coreline_versioned_destroy(versioned));
    OK(coreline_biased_rwlock_destroy(&lock));
    return 0;
}
