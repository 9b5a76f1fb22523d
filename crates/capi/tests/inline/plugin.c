/* A plugin with inline additions, for loads.c. */
#include <coreline.h>

coreline_code_t plugin_add(const coreline_counter_t *counter, const coreline_percpu_t *percpu);

coreline_code_t plugin_add(const coreline_counter_t *counter, const coreline_percpu_t *percpu)
{
    coreline_code_t code = coreline_counter_add_inline(counter, 1);
    return code == CORELINE_OK ? coreline_percpu_add_inline(percpu, 0, 1) : code;
}
