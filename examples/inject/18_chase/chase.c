/* Follows a list whose nodes lie in several processes: goes to where the next node is, instead of
 * having each node brought. */
#include <stdint.h>
#include <string.h>

#include <amalgam/inject/image.h>

AMALGAM_INJECTED(chase)

/* What targets export. 0: that node is the last. `owner`: whose the next one is; NULL: this one's.
 */
int next_node(void* store, uint64_t node, uint64_t* next, const char** owner);

struct position {
    uint64_t node;
    uint64_t hops;
    uint64_t crossings;
};

void chase_main(void* payload, size_t payload_size, void* store) {
    struct position at;
    uint64_t next = 0;
    const char* owner = NULL;
    if (payload_size != sizeof(at)) return;
    memcpy(&at, payload, sizeof(at));
    while (owner == NULL && next_node(store, at.node, &next, &owner)) {
        at.node = next;
        ++at.hops;
    }
    if (owner != NULL) {
        ++at.crossings;
        if (amalgam_inject_onward(owner, &at, sizeof(at), &at, sizeof(at)) != sizeof(at)) return;
    }
    amalgam_inject_result(&at, sizeof(at));
}
