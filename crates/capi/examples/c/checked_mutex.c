/* A mutex that knows its owner: mistakes are codes. */
#include <coreline.h>
#include <stdio.h>

static coreline_checked_mutex_t mutex = CORELINE_CHECKED_MUTEX_INIT;

int main(void)
{
    coreline_code_t twice;
    coreline_checked_mutex_lock(&mutex);
    twice = coreline_checked_mutex_lock(&mutex);
    printf("locked twice: %s\n", coreline_strerror(twice));
    coreline_checked_mutex_unlock(&mutex);
    return twice == CORELINE_ERROR_DEADLOCK ? 0 : 1;
}
