#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <amalgam/tasks/execution_stream.hpp>

namespace amalgam {

/// Snapshot of one stream.
struct stream_info {
    const execution_stream* id = nullptr;        ///< For comparison only: may already be gone.
    std::string name;                            ///< execution_stream_options::name
    int rank = 0;                                ///< See execution_stream::rank().
    stream_state state = stream_state::running;  ///< What it is doing.
    bool driven = false;                         ///< It has no thread of its own.
    cpu_set cpus;                                ///< Empty: any.
    std::string running;                         ///< Name of the ULT that it runs; may be empty.
    std::string scheduler;           ///< Type of the one at the top, such as "basic_scheduler".
    std::size_t posted = 0;          ///< Posted schedulers that are not done.
    std::vector<std::string> pools;  ///< describe() of each pool that it serves.
};

/// Lists the streams of the process, by rank; for debugging. Each is looked at while it runs, so
/// the list is not a consistent snapshot.
///
/// Threads: any, including ULTs. Calls size() of the pools, also of your own ones.
/// Failure: throws std::bad_alloc.
/// Cost:    no stream or stack starts or ends meanwhile.
std::vector<stream_info> list_streams();
/// Writes list_streams() to a file descriptor: a line per stream, its pools indented below. Write
/// errors are ignored.
void print_streams(int fd);
/// Writes describe() of the pool to a file descriptor, and a line for each unit queued in it, in
/// the order of pool::visit(). Where the caller must not visit it, as with a fifo_pool that another
/// stream serves, the ready ULTs of list_ults() whose home it is, in no order, and a count of the
/// other units, such as tasklets.
/// Threads: as list_streams(). Failure: as list_streams() and list_ults(); write errors are
/// ignored.
void print_pool(int fd, pool& what);

// One line each, such as "shared_fifo_pool 0x55d0: 3 ready, 5 ULTs, served by 'worker'". Threads
// and failure as list_streams().
std::string describe(const pool& what);
std::string describe(const scheduler& what);
std::string describe(const work_unit& what);  ///< Where the unit may be used, as in pool::visit().
std::string describe(const execution_stream& what);

/// Names of the streams that serve a pool. Threads and failure as list_streams().
std::vector<std::string> servers_of(const pool& what);

const char* name(stream_state state) noexcept;  ///< For example "asleep".

}  // namespace amalgam
