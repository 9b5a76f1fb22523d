/* Sessions whose buffers are expensive to make: they stay constructed when they are put back. */
#include <coreline.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct session {
    char *buffer;
    size_t used;
};

static int made;

static int construct(void *object, void *unused)
{
    struct session *session = (struct session *)object;
    (void)unused;
    session->buffer = (char *)malloc(65536);
    made++;
    return session->buffer == NULL;
}

static void destroy(void *object, void *unused)
{
    struct session *session = (struct session *)object;
    (void)unused;
    free(session->buffer);
}

int main(void)
{
    coreline_cache_options_t options;
    coreline_cache_t *sessions = NULL;
    memset(&options, 0, sizeof(options));
    options.size = sizeof(struct session);
    options.construct = construct;
    options.destroy = destroy;
    if (coreline_cache_create(&options, &sessions) != CORELINE_OK) {
        return 1;
    }
    for (int request = 0; request < 1000; request++) {
        void *object = NULL;
        if (coreline_cache_get(sessions, &object) != CORELINE_OK) {
            return 1;
        }
        struct session *session = (struct session *)object;
        session->used = (size_t)snprintf(session->buffer, 65536, "request %d", request);
        /* The next holder finds it empty. */
        session->used = 0;
        coreline_cache_put(sessions, session);
    }
    printf("%d sessions for 1000 requests\n", made);
    return coreline_cache_destroy(sessions) == CORELINE_OK && made < 1000 ? 0 : 1;
}
