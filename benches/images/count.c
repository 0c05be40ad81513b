/* Counts the messages that it came with. */
#include <amalgam/inject/image.h>

AMALGAM_INJECTED(count)

void count_main(void* payload, size_t payload_size, void* target_args) {
    (void)payload;
    (void)payload_size;
    ++*(unsigned long*)target_args;
}
