/** @file
 * RoCL's interface, for C and C++: the primitives of tables 1 to 3 of "RoCL: A Resource Oriented
 * Communication Library" (Alves, Pina, Exposto, Rufino), on top of this library's contexts,
 * resources and messages. C++ programs have amalgam/directory/context.hpp, which is more detailed.
 *
 * Where the paper leaves room:
 * - A process has one context, from rocl_init() to rocl_exit(). It joins the directory named by
 *   AMALGAM_DIRECTORY, else its host's, and listens at the ports in AMALGAM_PORTS
 *   ("shm://,tcp://eth0:0?insecure=yes"), else at shared memory only.
 * - Functions that return int return 0, or the requested value, or one of the negative codes below.
 *   The message for a code is logged (AMALGAM_LOG=rocl=info).
 * - Any thread may call any function; use an attribute list or a query from one thread at a time.
 * - Global identifiers are positive. As an argument, ROCL_ANY means any.
 * - Tags are not negative; ROCL_ANY is not a tag.
 * - Messages from one resource to another arrive in the order of rocl_send(). */
#ifndef AMALGAM_ROCL_H
#define AMALGAM_ROCL_H

#ifdef __cplusplus
extern "C" {
#endif

/** As a global identifier, a tag or a sender: any. */
#define ROCL_ANY (-1)

/** What functions return instead of 0 or a value. */
enum {
    ROCL_EINVALID = -2,      /**< invalid call */
    ROCL_ENOTFOUND = -3,     /**< no such resource or attribute, or no longer */
    ROCL_ETIMEDOUT = -4,     /**< timed out */
    ROCL_EOVERLOADED = -5,   /**< a limit of the directory is reached */
    ROCL_ENOMEMORY = -6,     /**< out of memory, or no room in the list */
    ROCL_EDISCONNECTED = -7, /**< the directory or a context is gone or unreachable */
    ROCL_ECLOSED = -8,       /**< no context, or it is closed meanwhile: call rocl_init() first */
    ROCL_EFAILED = -9,       /**< anything else */
    ROCL_EDENIED = -10,      /**< a different secret, or owned by another context */
    ROCL_EPARTIAL = -11      /**< like ROCL_ENOTFOUND, but some directories did not answer */
};

/* ---- contexts */

/** Opens the process's context. Returns its global identifier: it is also a resource.
 * ROCL_EINVALID: already open. */
int rocl_init(void);
/** Closes the context and all its resources, after every message accepted by rocl_send() has
 * arrived or failed: waits for receivers without room, as long as they exist. Messages not received
 * here are dropped at once. Buffers and attribute lists stay valid. In a child of fork(), what
 * sends, waits or asks gives ROCL_ECLOSED until rocl_exit(), which leaves all to the parent, and
 * rocl_init(), which opens a context of the child's own. */
int rocl_exit(void);

/* ---- attributes: names, each with or without a value */

/** A list of attributes. */
typedef struct rocl_attrl rocl_attrl_t;

/** Creates a list that may grow to `maxlen` bytes; 0: 1 MiB. NULL: no memory, or `maxlen` is
 * negative. */
rocl_attrl_t* rocl_new_attrl(int maxlen);
/** Adds an attribute, copying `len` bytes of its value. `val` NULL: the value is requested, and
 * `len` is its maximum size; 0: any. A longer value, or one the list has no room for, is left out
 * of the answer. Names are unique. */
int rocl_add_attr(rocl_attrl_t* attrs, const char* name, const void* val, int len);
/** The value of an attribute; valid until the list changes. NULL: it has none, and *len is 0 or, if
 * its value was left out, that value's size. `len` may be NULL. */
void* rocl_get_attr(rocl_attrl_t* attrs, const char* name, int* len);
/** Frees a list. */
int rocl_kill_attrl(rocl_attrl_t* attrs);

/* ---- resources */

/** Registers a resource. All attributes must have values. Returns its global identifier. */
int rocl_register(rocl_attrl_t* attrs);
/** Deletes a resource of this context. Its unreceived messages are dropped; threads waiting for one
 * get ROCL_ENOTFOUND. */
int rocl_delete(int gid);
/** Finds a resource that matches all attributes of `attrs` that have a value, and fills in the
 * others that it has. *gid positive: only that resource; otherwise set to the one found. `attrs`
 * may be NULL if *gid is positive. */
int rocl_query(int* gid, rocl_attrl_t* attrs);

/* ---- queries with many answers */

/** A query that has more answers. */
typedef struct rocl_handler rocl_handler_t;

/** Begins a query for all resources that match, as rocl_query() for one. NULL on failure. */
rocl_handler_t* rocl_query_start(rocl_attrl_t* attrs);
/** Fills `attrs`, a list like that of rocl_query_start() or the same one, with the next answer,
 * replacing what an earlier answer filled in. Returns the resource's global identifier.
 * ROCL_ENOTFOUND: no more. ROCL_EPARTIAL: no more, but some directories did not report all they
 * have. `attrs` may be NULL. */
int rocl_query_next(rocl_handler_t* handler, rocl_attrl_t* attrs);
/** Ends a query and frees it. */
int rocl_query_stop(rocl_handler_t* handler);

/* ---- buffers */

/** Memory for a message. NULL: none available. Release it with rocl_bfret() or rocl_bftoret(). */
void* rocl_bfget(int len);
/** Releases a buffer, sent or received. A buffer in flight is released once it has been sent. */
int rocl_bfret(void* ptr);
/** Releases a buffer once it has been sent. If called before its first rocl_send(), the program
 * keeps the buffer until that accepts it; if called afterwards, it is rocl_bfret(). */
int rocl_bftoret(void* ptr);
/** 1: in flight. 0: not in flight; never sent, or what was sent has arrived. Negative: the last
 * send failed. */
int rocl_bfstat(void* ptr);

/* ---- messages */

/** Sends the first `len` bytes of a buffer from a resource of this context to any other.
 * ROCL_EINVALID: `ogid` is not a resource of this context, the tag is negative, or the buffer is
 * smaller than `len`, as allocated or received. Returns once the message is in flight; do not
 * modify the buffer until rocl_bfstat() allows it. Waits for the directory if the resource is not
 * known yet. */
int rocl_send(int ogid, int dgid, int tag, void* ptr, int len);
/** Receives the oldest message to resource `dgid` of this context, or to any, from `ogid` or any,
 * with this tag or any; other negative tags give ROCL_EINVALID. *ptr is a buffer. aogid, atag and
 * alen describe the message, and may be NULL. `timeout` is in milliseconds: 0 does not wait, a
 * negative value waits indefinitely. */
int rocl_recv(int dgid, int ogid, int tag, void** ptr, int* aogid, int* atag, int* alen,
              int timeout);

#ifdef __cplusplus
}
#endif

#endif
