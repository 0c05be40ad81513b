#pragma once

#include <cstddef>
#include <cstdint>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/function.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/rpc/engine.hpp>

namespace amalgam {

namespace detail {
struct copies;
}  // namespace detail

/// Options of a copy_service.
struct copy_service_options {
    std::size_t max_copies = 16;  ///< At once; further ones are answered `overloaded`. At least 1.
    /// Each copy holds `depth` buffers of `chunk_bytes`. Both at least 1.
    std::size_t chunk_bytes = std::size_t{1} << 20;
    std::size_t depth = 4;  ///< Chunks in flight at once.
};

/// Lets other engines have this one copy between memory that it exposed and memory of a third
/// engine; see copy(). Whoever asks must hold a descriptor with the right to that memory, so it can
/// do no more than it could by itself, but it chooses which engine this one connects to. An
/// interceptor that sees_library_procedures() may refuse calls of "amalgam.bulk.copy".
///
/// Owner:   the engine must outlive it. The destructor stops serving; copies that run finish.
/// Threads: any.
/// Failure: the constructor throws error{invalid} if the engine has one already, or for an option
///          of 0; error{closed} after stop().
class copy_service {
public:
    explicit copy_service(engine& where, const copy_service_options& options = {});
    copy_service(const copy_service&) = delete;
    copy_service& operator=(const copy_service&) = delete;
    ~copy_service();

private:
    engine& where_;
    std::shared_ptr<detail::copies> copies_;
};

/// Options of copy(). The defaults suit most copies.
struct copy_options {
    /// Time limit for all of it; inside a handler, the earlier of this and the handler's own.
    std::chrono::nanoseconds within = std::chrono::nanoseconds::max();
    /// If the bytes have to pass through the asking engine: it holds `depth` buffers of this size.
    std::size_t chunk_bytes = std::size_t{1} << 20;
    std::size_t depth = 4;  ///< Chunks in flight at once; at least 1.
    /// Called after each chunk with the bytes that are in place, wherever they pass: in the caller
    /// of copy(), in the ULT of start_copy(). Begins again when another engine has to move them.
    /// While it waits, the copy soon does, too. An exception ends the copy with `handler_failed`.
    std::function<void(std::uint64_t bytes_done)> on_progress{};
};

/// Which engine moved the bytes of a copy.
enum class copied_by : std::uint8_t {
    target,  ///< The owner of the target pulled them.
    source,  ///< The owner of the source pushed them.
    here     ///< They passed through the engine that asked.
};

/// Copies all bytes of `from` to `to`, wherever the two memories are. The owner of `to` is asked to
/// pull. If it has no copy_service of this version, is overloaded, or cannot reach the other, the
/// owner of `from` is asked to push. If that fails in the same way, the bytes pass through this
/// engine.
///
///     copy(client, replica_a, replica_b);  // neither's bytes pass through the client
///
/// On success all bytes are in place, as after bulk::push(). After a failure some may be.
/// Threads: waits; parks the ULT or thread.
/// Failure: throws error{invalid} if the sizes differ, a descriptor is empty, or an option is 0;
///          otherwise as bulk::pull() and bulk::push().
/// Cost:    a call to the owner, which copies by chunks with several in flight.
copied_by copy(engine& asks, const bulk& from, const bulk& to, const copy_options& how = {});
/// The same without waiting. Canceling or destroying the future leaves the copy to run.
future<copied_by> start_copy(engine& asks, const bulk& from, const bulk& to,
                             const copy_options& how = {});

}  // namespace amalgam
