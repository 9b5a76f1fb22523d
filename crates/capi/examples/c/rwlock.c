/* A setting that many threads read and one changes. */
#include <coreline.h>
#include <stdio.h>

static struct {
    coreline_rwlock_t lock;
    int limit;
} settings = { CORELINE_RWLOCK_INIT, 10 };

int main(void)
{
    int seen;
    coreline_rwlock_write(&settings.lock);
    settings.limit = 20;
    /* Readers come in, and no other writer before this thread is done. */
    coreline_rwlock_downgrade(&settings.lock);
    seen = settings.limit;
    coreline_rwlock_read_unlock(&settings.lock);
    printf("the limit is %d\n", seen);
    return seen == 20 ? 0 : 1;
}
