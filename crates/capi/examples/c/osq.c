/* A lock of 4 bytes in each of many objects. A holder keeps its turn on its stack. */
#include <coreline.h>
#include <stdio.h>

static struct {
    coreline_osq_near_t lock;
    unsigned hits;
} buckets[1024];

int main(void)
{
    for (unsigned key = 0; key < 10000; key++) {
        unsigned bucket = key * 2654435761u % 1024;
        coreline_turn_t turn = CORELINE_TURN_INIT;
        coreline_osq_near_lock(&buckets[bucket].lock, &turn);
        buckets[bucket].hits++;
        coreline_osq_near_unlock(&buckets[bucket].lock, &turn);
    }
    printf("%u hits in the first bucket\n", buckets[0].hits);
    return 0;
}
