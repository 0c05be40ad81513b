/** @file
 * Declarations for the source file of an image, in C or C++. See amalgam/inject.
 *
 *     #include <amalgam/inject/image.h>
 *     AMALGAM_INJECTED(codec)
 *
 *     size_t codec_payload_get_max_size(void* source_args, size_t source_args_size) { … }
 *     int codec_payload_init(void* payload, size_t payload_size, void* source_args,
 *                            size_t source_args_size) { … }
 *     void codec_main(void* payload, size_t payload_size, void* target_args) { … }
 *
 * The first two run at the source: one returns the maximum payload size, the other writes the
 * payload and returns 0, or anything else on failure. The third runs at the target, in the process
 * that owns `target_args`. An image that makes no payloads of its own needs only the third. */
#ifndef AMALGAM_INJECT_IMAGE_H
#define AMALGAM_INJECT_IMAGE_H

#include <stddef.h>
#include <stdint.h>

/** How the functions below are declared. */
#ifdef __cplusplus
#define AMALGAM_INJECT_C extern "C"
#else
#define AMALGAM_INJECT_C
#endif

/** Declares the functions of image NAME. */
#define AMALGAM_INJECTED(NAME)                                                                \
    AMALGAM_INJECT_C void NAME##_main(void* payload, size_t payload_size, void* target_args); \
    AMALGAM_INJECT_C size_t NAME##_payload_get_max_size(void* source_args,                    \
                                                        size_t source_args_size);             \
    AMALGAM_INJECT_C int NAME##_payload_init(void* payload, size_t payload_size,              \
                                             void* source_args, size_t source_args_size);

/** In NAME_main: sets the result for the caller (copied; the last one counts). Returns 0, or -1 if
 * there is no caller. */
AMALGAM_INJECT_C int amalgam_inject_result(const void* data, size_t bytes);

/** In NAME_main: runs this image's NAME_main at another target as well and waits for its result, of
 * which the first `room` bytes go to `result`. Returns the full size, or -1 if it did not run there
 * or threw: see the target's log. Not possible in inline handlers, which cannot wait: see
 * injection_options::run. */
AMALGAM_INJECT_C long amalgam_inject_onward(const char* address, const void* payload,
                                            size_t payload_size, void* result, size_t room);

/** In NAME_main: calls a procedure from bytes to bytes, `std::vector<std::byte>(const_bytes)`, of
 * the process at `address`; NULL: the sender of this message. Waits for the result, and returns
 * like amalgam_inject_onward(). */
AMALGAM_INJECT_C long amalgam_inject_call(const char* address, const char* procedure,
                                          const void* argument, size_t argument_size, void* result,
                                          size_t room);

/** In NAME_main: size of the memory attached to the message under this number (from 0), which may
 * belong to the sender or others; -1 if there is none. See injection::attach(). */
AMALGAM_INJECT_C long amalgam_inject_attached(unsigned which);
/** Reads attached memory. Returns 0, or -1: see the target's log. Waits, like
 * amalgam_inject_onward(). */
AMALGAM_INJECT_C int amalgam_inject_pull(unsigned which, uint64_t offset, void* into, size_t bytes);
/** The other way. */
AMALGAM_INJECT_C int amalgam_inject_push(unsigned which, uint64_t offset, const void* from,
                                         size_t bytes);

/** In NAME_payload_init: sets the actual payload size, if less than the maximum. Returns 0, or -1
 * if `bytes` exceeds the maximum or no payload is being made. */
AMALGAM_INJECT_C int amalgam_inject_payload_size(size_t bytes);

#endif
