/* A panic ends in the library, and becomes a code. A lock's private members bring one about. */
#include "check.h"

int main(void)
{
    coreline_rwlock_t lock = CORELINE_RWLOCK_INIT;
    /* As many readers as a lock can count. */
    lock.state = 1u << 31;
    RETURNS(CORELINE_ERROR_PANIC, coreline_rwlock_read(&lock));
    RETURNS(CORELINE_ERROR_PANIC, coreline_rwlock_read_by(&lock, late()));
    CHECK(lock.state == 1u << 31);
    lock.state = 0;
    OK(coreline_rwlock_read(&lock));
    OK(coreline_rwlock_read_unlock(&lock));
    return 0;
}
