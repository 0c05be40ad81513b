#pragma once
// FastFlow's interface for programs whose groups are processes. Each group runs the same program:
//
//     program --DFF_Config=groups.json --DFF_GName=G1
//
// `amalgam run` starts all of them. With DISABLE_FF_DISTRIBUTED all nodes run in one process.

#if defined(FF_NODE_WITHOUT_DFF)
#error "include <ff/dff.hpp> before <ff/ff.hpp>: nodes are declared differently for it"
#endif

#if !defined(DISABLE_FF_DISTRIBUTED)
#define DFF_ENABLED
#endif
#if !defined(DFF_EXCLUDE_BLOCKING) && !defined(BLOCKING_MODE)
#define BLOCKING_MODE
#endif
#if !defined(DEFAULT_BATCH_SIZE)
#define DEFAULT_BATCH_SIZE 1
#endif
#if !defined(DEFAULT_BATCH_BYTE_SIZE)
#define DEFAULT_BATCH_BYTE_SIZE 65536
#endif
#if !defined(DEFAULT_MESSAGE_OTF)
#define DEFAULT_MESSAGE_OTF 100
#endif
#if !defined(DEFAULT_INTERNALMSG_OTF)
#define DEFAULT_INTERNALMSG_OTF 10
#endif

#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>

#include <ff/distributed/init.hpp>
#include <ff/distributed/printer.hpp>
#include <ff/ff.hpp>
#include <getopt.h>
#include <unistd.h>

namespace ff {

/// Takes FastFlow's options out of the arguments, and reads the configuration file:
///
///     --DFF_Config=FILE   the groups and their endpoints
///     --DFF_GName=NAME    the group that this process runs
///     --DFF_dryrun=FILE   run_and_wait_end() only writes which node is in which group
///
/// Then run_and_wait_end() of an outermost block runs this group's nodes, and returns when they
/// have ended and everything they sent has arrived.
/// Returns: 0; -1 with a sentence on stderr: an option is missing, or the file is wrong.
inline int DFF_Init(int& argc, char**& argv) {
#if defined(DISABLE_FF_DISTRIBUTED)
    static_cast<void>(argc);
    static_cast<void>(argv);
    return 0;
#else
    return detail::dff_init(argc, argv,
                            {DEFAULT_BATCH_SIZE, DEFAULT_BATCH_BYTE_SIZE, DEFAULT_MESSAGE_OTF,
                             DEFAULT_INTERNALMSG_OTF});
#endif
}

}  // namespace ff
