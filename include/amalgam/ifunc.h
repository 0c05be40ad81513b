/* Injected functions in C, in the shape of listing 1.1 of "UCX Programming Interface for Remote
 * Function Injection and Invocation" (Peña, Lu, Shamis, Poole), with endpoints of this library in
 * place of UCX's, and without addresses or keys of remote memory: messages are sent and received.
 * What an image looks like is in amalgam/inject/image.h; C++ programs have amalgam/inject.
 *
 * - Functions that return int return 0, or what they say, or one of the negative codes below;
 *   amalgam_ifunc_error() has the sentence behind the last one.
 * - A context makes progress only within amalgam_poll_ifunc(), which sources call, too: what was
 *   sent leaves there, and targets ask for code there. A context is used by the thread that opened
 *   it: polls of another one are refused (AMALGAM_IFUNC_EINVALID).
 * - A function's image is NAME.image in the folders of AMALGAM_IMAGE_PATH. It is sent to a target
 *   once, which keeps it.
 */
#ifndef AMALGAM_IFUNC_H
#define AMALGAM_IFUNC_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    AMALGAM_IFUNC_EINVALID = -1,     /* the call makes no sense, or the image cannot be used */
    AMALGAM_IFUNC_ENOTFOUND = -2,    /* no such image, or it makes no payloads */
    AMALGAM_IFUNC_EUNREACHABLE = -3, /* nobody is there, or not any more */
    AMALGAM_IFUNC_ENOMEMORY = -4,
    AMALGAM_IFUNC_EFAILED = -5 /* anything else */
};

typedef struct amalgam_ifunc_context amalgam_ifunc_context_t;
typedef struct amalgam_ifunc_ep amalgam_ifunc_ep_t;
typedef struct amalgam_ifunc amalgam_ifunc_t;
typedef struct amalgam_ifunc_msg amalgam_ifunc_msg_t;

/* What went wrong last in this thread: one sentence. */
const char* amalgam_ifunc_error(void);

/* ---- contexts and endpoints */

/* Opens one that listens at `uri`: "shm://", "tcp://eth0:0" … */
int amalgam_ifunc_open(const char* uri, amalgam_ifunc_context_t** context_p);
/* Ends it; its endpoints, functions and messages are to be gone. */
void amalgam_ifunc_close(amalgam_ifunc_context_t* context);
/* Where others reach it. Valid as long as the context. */
const char* amalgam_ifunc_address(amalgam_ifunc_context_t* context);
/* Does not wait: whether somebody is there shows later. */
int amalgam_ifunc_ep_create(amalgam_ifunc_context_t* context, const char* address,
                            amalgam_ifunc_ep_t** ep_p);
void amalgam_ifunc_ep_destroy(amalgam_ifunc_ep_t* ep);

/* ---- sources */

int amalgam_register_ifunc(amalgam_ifunc_context_t* context, const char* ifunc_name,
                           amalgam_ifunc_t** ifunc_p);
/* Targets that have not got its code will not get it any more, once its messages are freed. */
void amalgam_deregister_ifunc(amalgam_ifunc_context_t* context, amalgam_ifunc_t* ifunc);
/* Asks NAME_payload_get_max_size(), and has NAME_payload_init() write the payload in its place. */
int amalgam_ifunc_msg_create(amalgam_ifunc_t* ifunc, const void* source_args,
                             size_t source_args_size, amalgam_ifunc_msg_t** msg_p);
void amalgam_ifunc_msg_free(amalgam_ifunc_msg_t* msg);
/* Its payload, which may be changed while it is not being sent, and how long that is. */
void* amalgam_ifunc_msg_payload(amalgam_ifunc_msg_t* msg, size_t* bytes_p);
/* Sends it, without waiting; it may be sent again, and freed at once. */
int amalgam_ifunc_msg_send_nbix(amalgam_ifunc_ep_t* ep, const amalgam_ifunc_msg_t* msg);

/* ---- targets */

/* Lets functions run here: those that this signer has signed (64 digits, as amalgam inject key
 * prints them); NULL: all. Without any call none runs. To be called before anything comes. */
int amalgam_ifunc_trust(amalgam_ifunc_context_t* context, const char* signer);
/* Functions may import this by its name. To be called before anything comes. */
int amalgam_ifunc_export(amalgam_ifunc_context_t* context, const char* name, void* address);
/* Runs what has come, each with those arguments, and makes progress. Does not wait. Returns how
 * many it ran. */
int amalgam_poll_ifunc(amalgam_ifunc_context_t* context, void* target_args);
/* For poll(2), as long as the context: readable when amalgam_poll_ifunc() has something to do. */
int amalgam_ifunc_event_fd(amalgam_ifunc_context_t* context);

#ifdef __cplusplus
}
#endif

#endif
