/* The same with a table, so that its image has 4 KiB. */
#include <amalgam/inject/image.h>

AMALGAM_INJECTED(count_4k)

static const unsigned char weights[3547] = {1, 2, 3};

void count_4k_main(void* payload, size_t payload_size, void* target_args) {
    *(unsigned long*)target_args +=
        weights[*(unsigned char*)payload % sizeof(weights)] + payload_size - payload_size;
}
