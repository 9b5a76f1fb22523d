/* A table that is searched recursively: a thread may read again while it reads. */
#include <coreline.h>
#include <stdio.h>

static coreline_biased_rwlock_t lock = CORELINE_BIASED_RWLOCK_INIT;
static int parents[] = { 0, 0, 1, 1, 3 };

static int depth(int node)
{
    int found = 0;
    coreline_biased_rwlock_read(&lock);
    if (node != 0) {
        found = 1 + depth(parents[node]);
    }
    coreline_biased_rwlock_read_unlock(&lock);
    return found;
}

int main(void)
{
    int before, after;
    before = depth(4);
    coreline_biased_rwlock_write(&lock);
    parents[4] = 0;
    coreline_biased_rwlock_write_unlock(&lock);
    after = depth(4);
    printf("depth %d, then %d\n", before, after);
    /* Frees the memory that the lock has allocated if it was ever biased. */
    coreline_biased_rwlock_destroy(&lock);
    return before == 3 && after == 1 ? 0 : 1;
}
