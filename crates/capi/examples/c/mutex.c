/* A list behind a mutex of 8 bytes that needs no initialisation at run time. */
#include <coreline.h>
#include <stdio.h>

static struct {
    coreline_mutex_t mutex;
    int names;
} list = { CORELINE_MUTEX_INIT, 0 };

int main(void)
{
    /* Without a call if the mutex is free. */
    coreline_mutex_lock_inline(&list.mutex);
    list.names++;
    coreline_mutex_unlock(&list.mutex);

    /* No longer than a millisecond. */
    if (coreline_mutex_lock_by(&list.mutex, coreline_now() + 1000000) == CORELINE_TIMED_OUT) {
        return 1;
    }
    list.names++;
    coreline_mutex_unlock(&list.mutex);
    printf("%d names\n", list.names);
    return list.names == 2 ? 0 : 1;
}
