/* A table of routes that every request reads and that seldom changes. */
#include <coreline.h>
#include <stdio.h>

int main(void)
{
    coreline_read_mostly_t *lock = NULL;
    int routes = 1;
    if (coreline_read_mostly_create(&lock) != CORELINE_OK) {
        return 1;
    }
    for (int request = 0; request < 1000; request++) {
        coreline_read_mostly_read(lock);
        if (routes < 1) {
            return 1;
        }
        coreline_read_mostly_read_unlock(lock);
    }
    if (coreline_read_mostly_write(lock) != CORELINE_OK) {
        return 1;
    }
    routes++;
    coreline_read_mostly_write_unlock(lock);
    printf("%d routes\n", routes);
    return coreline_read_mostly_destroy(lock) == CORELINE_OK ? 0 : 1;
}
