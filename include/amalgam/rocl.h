/* RoCL's interface, for C and C++: the primitives of tables 1 to 3 of "RoCL: A Resource Oriented
 * Communication Library" (Alves, Pina, Exposto, Rufino), over contexts, resources and messages of
 * this library. C++ programs have amalgam/directory/context.hpp, which says more.
 *
 * What the paper leaves open is so here:
 * - A process has one context, from rocl_init() to rocl_exit(). It opens at the directory that
 *   AMALGAM_DIRECTORY names, else at that of its host, and listens at the ports that AMALGAM_PORTS
 *   lists ("shm://,tcp://eth0:0"), else at shared memory only.
 * - Functions that return int return 0, or what they were asked for, or one of the negative codes
 *   below. The sentence behind a code is logged (AMALGAM_LOG=rocl=info).
 * - Any thread may call any function; an attribute list, or a query, is one thread's at a time.
 * - Global identifiers are positive. Where one is asked for, ROCL_ANY means any.
 * - Tags are not negative; ROCL_ANY is none.
 * - Messages of one resource to another arrive in the order of rocl_send().
 */
#ifndef AMALGAM_ROCL_H
#define AMALGAM_ROCL_H

#ifdef __cplusplus
extern "C" {
#endif

#define ROCL_ANY (-1)

enum {
    ROCL_EINVALID = -2,      /* the call makes no sense */
    ROCL_ENOTFOUND = -3,     /* no such resource or attribute, or not any more */
    ROCL_ETIMEDOUT = -4,     /* nothing came in time */
    ROCL_EOVERLOADED = -5,   /* a limit of the directory is reached */
    ROCL_ENOMEMORY = -6,     /* there is no memory, or no room in the list */
    ROCL_EDISCONNECTED = -7, /* the directory or a context is gone, or cannot be reached */
    ROCL_ECLOSED = -8,       /* there is no context: rocl_init() comes first */
    ROCL_EFAILED = -9,       /* anything else */
    ROCL_EDENIED = -10,      /* another secret, or what belongs to another context */
    ROCL_EPARTIAL = -11      /* as ROCL_ENOTFOUND, but some directories did not answer */
};

/* ---- contexts */

/* Opens the process's context. Returns its global identifier: it is a resource, too.
 * ROCL_EINVALID: it is open already. */
int rocl_init(void);
/* Closes it, with all its resources, when what rocl_send() took has arrived, or cannot: it waits
 * for receivers that have no room, as long as they are there. What was not received here is gone at
 * once. Buffers and lists of attributes stay valid. */
int rocl_exit(void);

/* ---- attributes: names, each with a value or without */

typedef struct rocl_attrl rocl_attrl_t;

/* A list that may grow to so many bytes; 0: to 1 MiB. NULL: no memory, or `maxlen` is
 * negative. */
rocl_attrl_t* rocl_new_attrl(int maxlen);
/* Adds one, copying `len` bytes of its value. `val` NULL: the value is asked for, and `len` says
 * how many bytes it may have; 0: any. One that is longer, or for which the list may not grow, is
 * left out of the answer. A name is there once. */
int rocl_add_attr(rocl_attrl_t* attrs, const char* name, const void* val, int len);
/* The value of one; valid until the list changes. NULL: it has none, and *len is 0, or how long the
 * value is that was left out. `len` may be NULL. */
void* rocl_get_attr(rocl_attrl_t* attrs, const char* name, int* len);
int rocl_kill_attrl(rocl_attrl_t* attrs);

/* ---- resources */

/* Registers a resource whose attributes all have values. Returns its global identifier. */
int rocl_register(rocl_attrl_t* attrs);
/* Deletes a resource of this context. Messages to it that were not received are gone; who waits
 * for one gets ROCL_ENOTFOUND. */
int rocl_delete(int gid);
/* Finds a resource that has all attributes of `attrs` with a value, and fills in those without as
 * far as it has them. *gid positive: that resource and no other; else it is set to the one that was
 * found. `attrs` may be NULL with a *gid. */
int rocl_query(int* gid, rocl_attrl_t* attrs);

/* ---- queries with many answers */

typedef struct rocl_handler rocl_handler_t;

/* NULL: it failed. */
rocl_handler_t* rocl_query_start(rocl_attrl_t* attrs);
/* Fills `attrs`, a list like that of rocl_query_start(), or the same, with the next answer; what an
 * earlier answer has filled in is replaced. Returns its global identifier. ROCL_ENOTFOUND: there
 * are no more. ROCL_EPARTIAL: nor are there, but some directories have not said all they have.
 * `attrs` may be NULL. */
int rocl_query_next(rocl_handler_t* handler, rocl_attrl_t* attrs);
int rocl_query_stop(rocl_handler_t* handler);

/* ---- buffers */

/* Memory for a message. NULL: there is none. Its end is rocl_bfret() or rocl_bftoret(). */
void* rocl_bfget(int len);
/* Gives a buffer back, sent or received. One that is on its way goes back when it has been sent. */
int rocl_bfret(void* ptr);
/* Gives it back once it has been sent. Said before its first rocl_send() it stays the program's
 * until that has taken it; afterwards it is rocl_bfret(). */
int rocl_bftoret(void* ptr);
/* 1: it is on its way. 0: it is not; it was never sent, or what was sent has arrived. Negative:
 * what was sent last did not arrive. */
int rocl_bfstat(void* ptr);

/* ---- messages */

/* Sends the first `len` bytes of a buffer from a resource of this context to any other.
 * ROCL_EINVALID: `ogid` is no resource of this context, the tag is negative, or the buffer was
 * asked for, or received, with fewer bytes. Returns when it is on its way; the buffer must not be
 * changed until rocl_bfstat() says so. Waits for the directory when the resource is not known yet.
 */
int rocl_send(int ogid, int dgid, int tag, void* ptr, int len);
/* Receives the first message to resource `dgid` of this context, or to any, from `ogid` or any,
 * with this tag or any; another negative one is ROCL_EINVALID. *ptr is a buffer; aogid, atag and
 * alen tell what came, and may be NULL.
 * `timeout` in milliseconds: 0 does not wait, a negative one waits without end. */
int rocl_recv(int dgid, int ogid, int tag, void** ptr, int* aogid, int* atag, int* alen,
              int timeout);

#ifdef __cplusplus
}
#endif

#endif
