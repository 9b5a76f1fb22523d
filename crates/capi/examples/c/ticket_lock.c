/* A FIFO lock around a few instructions, for fewer threads than CPUs. */
#include <coreline.h>
#include <stdio.h>

static coreline_ticket_lock_t lock = CORELINE_TICKET_LOCK_INIT;
static int next_number;

static int number(void)
{
    int mine;
    coreline_ticket_lock_lock(&lock);
    mine = next_number++;
    coreline_ticket_lock_unlock(&lock);
    return mine;
}

int main(void)
{
    number();
    printf("number %d\n", number());
    return next_number == 2 ? 0 : 1;
}
