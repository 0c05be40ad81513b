/* The same with a table, so that its image has 4 KiB. */
#include <amalgam/inject/image.h>

AMALGAM_INJECTED(count_4k)

void count_message(void* target);

static const unsigned char weights[3712] = {1, 2, 3};

void count_4k_main(void* payload, size_t payload_size, void* target) {
    if (payload_size > 0 && weights[*(unsigned char*)payload] < 9) count_message(target);
}
