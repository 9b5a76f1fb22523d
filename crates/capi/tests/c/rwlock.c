/* The readers-writer lock, and the read-mostly lock. */
#include "check.h"

enum { TIMES = 20000 };

static coreline_rwlock_t lock = CORELINE_RWLOCK_INIT;
static coreline_read_mostly_t *mostly;
/* Two halves that are equal outside of a writer's section. */
static int64_t left, right, mostly_left, mostly_right;

static void *use(void *number)
{
    for (int time = 0; time < TIMES; time++) {
        if (time % 16 == (int)(size_t)number) {
            OK(time % 2 ? coreline_rwlock_write(&lock) : coreline_rwlock_write_by(&lock, late()));
            left++;
            right++;
            if (time % 32 < 16) {
                OK(coreline_rwlock_write_unlock(&lock));
            } else {
                OK(coreline_rwlock_downgrade(&lock));
                CHECK(left == right);
                OK(coreline_rwlock_read_unlock(&lock));
            }
        } else {
            OK(time % 2 ? coreline_rwlock_read(&lock) : coreline_rwlock_read_by(&lock, late()));
            CHECK(left == right);
            OK(coreline_rwlock_read_unlock(&lock));
        }
        if (time % 256 == (int)(size_t)number) {
            OK(number ? coreline_read_mostly_write(mostly) : coreline_read_mostly_write_by(mostly, late()));
            mostly_left++;
            mostly_right++;
            OK(coreline_read_mostly_write_unlock(mostly));
        } else {
            OK(number ? coreline_read_mostly_read(mostly) : coreline_read_mostly_read_by(mostly, late()));
            CHECK(mostly_left == mostly_right);
            OK(coreline_read_mostly_read_unlock(mostly));
        }
    }
    return NULL;
}

static void *finds_readers(void *number)
{
    (void)number;
    RETURNS(CORELINE_BUSY, coreline_rwlock_try_write(&lock));
    RETURNS(CORELINE_TIMED_OUT, coreline_rwlock_write_by(&lock, soon()));
    OK(coreline_rwlock_try_read(&lock));
    OK(coreline_rwlock_read_unlock(&lock));
    RETURNS(CORELINE_BUSY, coreline_read_mostly_try_write(mostly));
    RETURNS(CORELINE_TIMED_OUT, coreline_read_mostly_write_by(mostly, soon()));
    OK(coreline_read_mostly_try_read(mostly));
    OK(coreline_read_mostly_read_unlock(mostly));
    return NULL;
}

static void *finds_a_writer(void *number)
{
    (void)number;
    RETURNS(CORELINE_BUSY, coreline_rwlock_try_read(&lock));
    RETURNS(CORELINE_BUSY, coreline_rwlock_try_write(&lock));
    RETURNS(CORELINE_TIMED_OUT, coreline_rwlock_read_by(&lock, soon()));
    RETURNS(CORELINE_BUSY, coreline_read_mostly_try_read(mostly));
    RETURNS(CORELINE_BUSY, coreline_read_mostly_try_write(mostly));
    RETURNS(CORELINE_TIMED_OUT, coreline_read_mostly_read_by(mostly, soon()));
    return NULL;
}

int main(void)
{
    int64_t written = 0;
    OK(coreline_read_mostly_create(&mostly));
    in_threads(use);
    for (int number = 0; number < THREADS; number++) {
        for (int time = 0; time < TIMES; time++) {
            written += time % 16 == number;
        }
    }
    CHECK(left == written && right == written);
    CHECK(mostly_left == mostly_right && mostly_left > 0);

    OK(coreline_rwlock_read(&lock));
    OK(coreline_read_mostly_read(mostly));
    elsewhere(finds_readers);
    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_rwlock_write_unlock(&lock));
    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_rwlock_downgrade(&lock));
    OK(coreline_rwlock_read_unlock(&lock));
    OK(coreline_read_mostly_read_unlock(mostly));

    OK(coreline_rwlock_try_write(&lock));
    OK(coreline_read_mostly_try_write(mostly));
    elsewhere(finds_a_writer);
    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_rwlock_read_unlock(&lock));
    OK(coreline_rwlock_write_unlock(&lock));
    OK(coreline_read_mostly_write_unlock(mostly));

    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_rwlock_read_unlock(&lock));
    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_rwlock_write_unlock(&lock));
    RETURNS(CORELINE_ERROR_NULL, coreline_rwlock_read(NULL));
    RETURNS(CORELINE_ERROR_NULL, coreline_read_mostly_read(NULL));
    RETURNS(CORELINE_ERROR_NULL, coreline_read_mostly_read_by(NULL, soon()));
    RETURNS(CORELINE_ERROR_NULL, coreline_read_mostly_try_write(NULL));
    RETURNS(CORELINE_ERROR_NULL, coreline_read_mostly_write_by(NULL, soon()));
    OK(coreline_read_mostly_destroy(mostly));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_read_mostly_destroy(mostly));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_read_mostly_write(mostly));
    return 0;
}
