/* The readers-writer lock whose reads may nest, before and after it is biased. */
#include "check.h"

enum { TIMES = 20000, PAYS = 1000 };

static coreline_biased_rwlock_t lock = CORELINE_BIASED_RWLOCK_INIT;
/* Two halves that are equal outside of a writer's section. */
static int64_t left, right;

static void *use(void *number)
{
    for (int time = 0; time < TIMES; time++) {
        if (time % 512 == (int)(size_t)number) {
            OK(time % 1024 < 512 ? coreline_biased_rwlock_write(&lock)
                                 : coreline_biased_rwlock_write_by(&lock, late()));
            left++;
            right++;
            if (time % 1024 < 512) {
                OK(coreline_biased_rwlock_write_unlock(&lock));
            } else {
                OK(coreline_biased_rwlock_downgrade(&lock));
                CHECK(left == right);
                OK(coreline_biased_rwlock_unlock(&lock));
            }
        } else {
            OK(time % 2 ? coreline_biased_rwlock_read(&lock)
                        : coreline_biased_rwlock_read_by(&lock, late()));
            /* Again while it reads, even if a writer waits. */
            OK(coreline_biased_rwlock_read(&lock));
            CHECK(left == right);
            OK(coreline_biased_rwlock_read_unlock(&lock));
            OK(time % 4 < 2 ? coreline_biased_rwlock_read_unlock(&lock)
                            : coreline_biased_rwlock_unlock(&lock));
        }
    }
    return NULL;
}

static void *finds_readers(void *number)
{
    (void)number;
    RETURNS(CORELINE_BUSY, coreline_biased_rwlock_try_write(&lock));
    RETURNS(CORELINE_TIMED_OUT, coreline_biased_rwlock_write_by(&lock, soon()));
    OK(coreline_biased_rwlock_try_read(&lock));
    OK(coreline_biased_rwlock_read_unlock(&lock));
    RETURNS(CORELINE_BUSY, coreline_biased_rwlock_destroy(&lock));
    return NULL;
}

static void *finds_a_writer(void *number)
{
    (void)number;
    RETURNS(CORELINE_BUSY, coreline_biased_rwlock_try_read(&lock));
    RETURNS(CORELINE_BUSY, coreline_biased_rwlock_try_write(&lock));
    RETURNS(CORELINE_TIMED_OUT, coreline_biased_rwlock_read_by(&lock, soon()));
    RETURNS(CORELINE_BUSY, coreline_biased_rwlock_destroy(&lock));
    return NULL;
}

/* So many reads that meet another one. */
static void read_much(void)
{
    OK(coreline_biased_rwlock_read(&lock));
    for (int time = 0; time < PAYS; time++) {
        OK(coreline_biased_rwlock_read(&lock));
        OK(coreline_biased_rwlock_read_unlock(&lock));
    }
    OK(coreline_biased_rwlock_read_unlock(&lock));
}

static void exclude(void)
{
    OK(coreline_biased_rwlock_read(&lock));
    OK(coreline_biased_rwlock_try_read(&lock));
    elsewhere(finds_readers);
    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_biased_rwlock_write_unlock(&lock));
    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_biased_rwlock_downgrade(&lock));
    OK(coreline_biased_rwlock_read_unlock(&lock));
    OK(coreline_biased_rwlock_unlock(&lock));

    OK(coreline_biased_rwlock_try_write(&lock));
    elsewhere(finds_a_writer);
    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_biased_rwlock_read_unlock(&lock));
    OK(coreline_biased_rwlock_downgrade(&lock));
    elsewhere(finds_readers);
    OK(coreline_biased_rwlock_read_unlock(&lock));
    OK(coreline_biased_rwlock_write(&lock));
    OK(coreline_biased_rwlock_unlock(&lock));
}

int main(void)
{
    static const coreline_biased_rwlock_t zeros = CORELINE_BIASED_RWLOCK_INIT;
    coreline_biased_rwlock_t *odd = (coreline_biased_rwlock_t *)(void *)((char *)&lock + 4);
    int64_t written = 0;
    exclude();
    read_much();
    exclude();
    read_much();
    in_threads(use);
    for (int number = 0; number < THREADS; number++) {
        for (int time = 0; time < TIMES; time++) {
            written += time % 512 == number;
        }
    }
    CHECK(left == written && right == written);

    read_much();
    OK(coreline_biased_rwlock_destroy(&lock));
    CHECK(memcmp(&lock, &zeros, sizeof(lock)) == 0);
    /* It is free and not biased, so each wrong unlock is found. */
    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_biased_rwlock_read_unlock(&lock));
    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_biased_rwlock_write_unlock(&lock));
    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_biased_rwlock_unlock(&lock));
    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_biased_rwlock_downgrade(&lock));
    read_much();
    exclude();
    OK(coreline_biased_rwlock_destroy(&lock));
    OK(coreline_biased_rwlock_destroy(&lock));

    RETURNS(CORELINE_ERROR_NULL, coreline_biased_rwlock_read(NULL));
    RETURNS(CORELINE_ERROR_NULL, coreline_biased_rwlock_destroy(NULL));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_biased_rwlock_write(odd));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_biased_rwlock_destroy(odd));
    return 0;
}
