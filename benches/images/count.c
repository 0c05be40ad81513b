/* Tells where it is that a message has come. */
#include <amalgam/inject/image.h>

AMALGAM_INJECTED(count)

void count_message(void* target);

void count_main(void* payload, size_t payload_size, void* target) {
    (void)payload;
    (void)payload_size;
    count_message(target);
}
