/** @file
 * Injected functions in C, modeled on listing 1.1 of "UCX Programming Interface for Remote Function
 * Injection and Invocation" (Peña, Lu, Shamis, Poole). Endpoints of this library replace UCX's.
 * There are no remote addresses or keys: messages are sent and received. See amalgam/inject/image.h
 * for the contents of an image; C++ programs have amalgam/inject.
 *
 * - Functions that return int return 0, or a documented value, or one of the negative codes below;
 *   amalgam_ifunc_error() returns the message for the last one.
 * - A context makes progress only inside amalgam_poll_ifunc(), which sources must call, too: it
 *   sends queued messages, and serves targets that request code. Use a context from the thread that
 *   opened it: polling from another is refused (AMALGAM_IFUNC_EINVALID).
 * - A function's image is NAME.image in the directories of AMALGAM_IMAGE_PATH. It is sent once to
 *   each target, which keeps it. */
#ifndef AMALGAM_IFUNC_H
#define AMALGAM_IFUNC_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What functions return on failure; 0 on success. */
enum {
    AMALGAM_IFUNC_EINVALID = -1,     /**< invalid call, or the image cannot be used */
    AMALGAM_IFUNC_ENOTFOUND = -2,    /**< no such image, or it makes no payloads */
    AMALGAM_IFUNC_EUNREACHABLE = -3, /**< the peer is unreachable or lost */
    AMALGAM_IFUNC_ENOMEMORY = -4,    /**< out of memory */
    AMALGAM_IFUNC_EFAILED = -5       /**< anything else */
};

/** A process's end: what it sends and takes. */
typedef struct amalgam_ifunc_context amalgam_ifunc_context_t;
/** A peer, to send to. */
typedef struct amalgam_ifunc_ep amalgam_ifunc_ep_t;
/** A function that this process sends. */
typedef struct amalgam_ifunc amalgam_ifunc_t;
/** A function with a payload. */
typedef struct amalgam_ifunc_msg amalgam_ifunc_msg_t;

/** One sentence about this thread's last error. */
const char* amalgam_ifunc_error(void);

/* ---- contexts and endpoints */

/** Opens a context that listens at `uri`: "shm://", "tcp://eth0:0?insecure=yes" … */
int amalgam_ifunc_open(const char* uri, amalgam_ifunc_context_t** context_p);
/** Closes a context. Precondition: its endpoints, functions and messages are gone. */
void amalgam_ifunc_close(amalgam_ifunc_context_t* context);
/** The address for peers. Valid as long as the context. */
const char* amalgam_ifunc_address(amalgam_ifunc_context_t* context);
/** Does not wait: an unreachable peer shows up later. */
int amalgam_ifunc_ep_create(amalgam_ifunc_context_t* context, const char* address,
                            amalgam_ifunc_ep_t** ep_p);
/** Frees it; the connection stays as long as the context. */
void amalgam_ifunc_ep_destroy(amalgam_ifunc_ep_t* ep);

/* ---- sources */

/** Loads the image of that name, to send it. */
int amalgam_register_ifunc(amalgam_ifunc_context_t* context, const char* ifunc_name,
                           amalgam_ifunc_t** ifunc_p);
/** Once its messages are freed too, targets that lack its code can no longer get it. */
void amalgam_deregister_ifunc(amalgam_ifunc_context_t* context, amalgam_ifunc_t* ifunc);
/** Calls NAME_payload_get_max_size(), then NAME_payload_init() to write the payload in place. */
int amalgam_ifunc_msg_create(amalgam_ifunc_t* ifunc, const void* source_args,
                             size_t source_args_size, amalgam_ifunc_msg_t** msg_p);
/** Frees a message, also while it is being sent. */
void amalgam_ifunc_msg_free(amalgam_ifunc_msg_t* msg);
/** The payload and its size. May be modified while it is not being sent. */
void* amalgam_ifunc_msg_payload(amalgam_ifunc_msg_t* msg, size_t* bytes_p);
/** Sends the message without waiting. It may be sent again, or freed at once. */
int amalgam_ifunc_msg_send_nbix(amalgam_ifunc_ep_t* ep, const amalgam_ifunc_msg_t* msg);

/* ---- targets */

/** Lets functions signed by this signer run here (64 digits, as printed by amalgam inject key);
 * NULL: all. Without any call, none run. Call it before any message arrives. */
int amalgam_ifunc_trust(amalgam_ifunc_context_t* context, const char* signer);
/** Makes a symbol available to functions by name. Call it before any message arrives. */
int amalgam_ifunc_export(amalgam_ifunc_context_t* context, const char* name, void* address);
/** Makes progress and runs pending functions with `target_args`. Does not wait. Returns how many it
 * ran. */
int amalgam_poll_ifunc(amalgam_ifunc_context_t* context, void* target_args);
/** For poll(2), valid as long as the context: readable when amalgam_poll_ifunc() has work. */
int amalgam_ifunc_event_fd(amalgam_ifunc_context_t* context);

#ifdef __cplusplus
}
#endif

#endif
