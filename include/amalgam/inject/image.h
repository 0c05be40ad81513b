/* For code that travels: what the file of an image declares, in C or C++. See amalgam/inject.
 *
 *     #include <amalgam/inject/image.h>
 *     AMALGAM_INJECTED(codec)
 *
 *     size_t codec_payload_get_max_size(void* source_args, size_t source_args_size) { … }
 *     int codec_payload_init(void* payload, size_t payload_size, void* source_args,
 *                            size_t source_args_size) { … }
 *     void codec_main(void* payload, size_t payload_size, void* target_args) { … }
 *
 * The first two run where messages are made: how many bytes the payload has at most, and what they
 * are; anything but 0 means that it failed. The third runs at the target, in the process that has
 * `target_args`. An image that makes no payloads of its own needs only the third.
 */
#ifndef AMALGAM_INJECT_IMAGE_H
#define AMALGAM_INJECT_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define AMALGAM_INJECT_C extern "C"
#else
#define AMALGAM_INJECT_C
#endif

/* The functions of an image of that name. */
#define AMALGAM_INJECTED(NAME)                                                                \
    AMALGAM_INJECT_C void NAME##_main(void* payload, size_t payload_size, void* target_args); \
    AMALGAM_INJECT_C size_t NAME##_payload_get_max_size(void* source_args,                    \
                                                        size_t source_args_size);             \
    AMALGAM_INJECT_C int NAME##_payload_init(void* payload, size_t payload_size,              \
                                             void* source_args, size_t source_args_size);

/* Within NAME_main: what who called it gets, a copy; the last one counts. 0, or -1: nobody has
 * called. */
AMALGAM_INJECT_C int amalgam_inject_result(const void* data, size_t bytes);

/* Within NAME_main: has this image's NAME_main run at another target as well, at that address, and
 * waits for what it gives there, of which the first `room` bytes go to `result`. Returns how many
 * there are; -1 when it did not run there, or threw: the target's log says why. Where handlers run
 * inline it cannot wait, and so not do this: see injection_options::run. */
AMALGAM_INJECT_C long amalgam_inject_onward(const char* address, const void* payload,
                                            size_t payload_size, void* result, size_t room);

/* Within NAME_main: calls a procedure from bytes to bytes, `std::vector<std::byte>(const_bytes)`,
 * of the process at that address; NULL: of the one that sent this message. Waits for its result,
 * and returns as amalgam_inject_onward() does. */
AMALGAM_INJECT_C long amalgam_inject_call(const char* address, const char* procedure,
                                          const void* argument, size_t argument_size, void* result,
                                          size_t room);

/* Within NAME_main: how much memory of the sender's, or of others, was attached to the message
 * under this number (the first is 0); -1: none was. See injection::attach(). */
AMALGAM_INJECT_C long amalgam_inject_attached(unsigned which);
/* Reads from such memory, or writes there. 0, or -1: the target's log says why. They wait, as
 * amalgam_inject_onward() does. */
AMALGAM_INJECT_C int amalgam_inject_pull(unsigned which, uint64_t offset, void* into, size_t bytes);
AMALGAM_INJECT_C int amalgam_inject_push(unsigned which, uint64_t offset, const void* from,
                                         size_t bytes);

/* Within NAME_payload_init: the payload is so long, and not as long as it might have been. 0, or
 * -1: it is longer than that, or no payload is being made. */
AMALGAM_INJECT_C int amalgam_inject_payload_size(size_t bytes);

#endif
