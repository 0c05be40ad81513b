#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <amalgam/bulk/segments.hpp>
#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/function.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/fabric/region.hpp>
#include <amalgam/rpc/peer.hpp>
#include <amalgam/tasks/future.hpp>

namespace amalgam {

class bulk;
class bulk_cache;

namespace detail {
struct bulk_source;
struct origin;
struct bulk_image;
struct received_bulk;

using pipeline_step = void (*)(void* context, mutable_bytes chunk, std::uint64_t offset);
}  // namespace detail

/// Options of a pull or push. The defaults suit most transfers.
struct bulk_options {
    /// Time limit for the whole transfer; inside a handler, the earlier of this and the handler's
    /// own applies. The transfer ends slightly later: see "Failure" of bulk.
    std::chrono::nanoseconds within = std::chrono::nanoseconds::max();
    /// Piece size; a few pieces are in flight at a time. 0: chosen by the engine.
    std::size_t chunk_bytes = 0;
    /// Called after each piece with the bytes moved so far, on the engine's stream, or in the call
    /// itself for bytes inside the descriptor. It must not wait. An exception ends the transfer
    /// with `handler_failed`.
    std::function<void(std::uint64_t bytes_done)> on_progress{};
    /// Stripes over all paths to the owning engine at once, if either engine looked the other up by
    /// several addresses (see engine::lookup()). Each path takes the next piece when it finishes
    /// one. Pays off when the paths are separate physical links.
    bool striped = false;
};

/// Options of a pipelined transfer.
struct pipeline_options {
    std::chrono::nanoseconds within = std::chrono::nanoseconds::max();  ///< For the whole transfer.
    /// Source of its `depth` buffers of `chunk` bytes; null: the heap.
    bulk_cache* buffers = nullptr;
    /// Called in the caller, after each chunk that was worked on or has arrived, with the bytes so
    /// far. An exception cancels what is in flight, and ends the transfer with `handler_failed`.
    std::function<void(std::uint64_t bytes_done)> on_progress{};
};

/// A descriptor of memory that other processes may read or write. expose() makes it; whoever
/// receives it as an argument or result pulls from it and pushes to it.
///
///     server.define("store", [](bulk data) { auto copy = data.pull_all(); … });
///     store.on(peer)(expose(client, vector));
///
/// The bytes form one logical range over all segments. Only the descriptor travels, not the bytes,
/// except for short read-only ones, which are sent inside it. It may be passed on to a third
/// process if the engine that exposed the memory listens. Over tcp+tls it works only for the peer
/// that the owner sent it to, in shared memory of several users for that user, unless the memory is
/// shareable: see expose_options.
/// Owner:   a plain value. The exposing side controls the memory's lifetime: see exposed and
///          expose_owned(). The engine that received or made it must outlive its use.
/// Threads: like a plain value; operations from any ULT or thread, several at once.
/// Failure: invalid (past the end, or empty descriptor), denied (wrong rights, the memory is no
///          longer exposed, including after a restart of its owner, or it was sent to somebody
///          else), timed_out, canceled,
///          unreachable, disconnected, closed, no_memory.
///          Part of the bytes may have moved by then. After the end none moves, so both memories
///          may be reused, and an earlier push cannot tear a later one. Exception: when a push ends
///          as disconnected, unreachable or closed, the owner may still write data it had received,
///          until it notices the lost connection. A ULT canceled while waiting in a push gets
///          `canceled` even then.
///          Hence a transfer ends later than its deadline or cancel: a push waits until the owner
///          has acknowledged everything sent, one round trip after what is in flight. An
///          unresponsive owner is then disconnected after the silence limit (default 5 s, see
///          port_options); with several paths, each may take that long. Without a deadline or
///          engine_options::keepalive, a transfer waits for an owner that is stopped or hangs.
///          Throwing members also throw std::bad_alloc if there is no memory to start with.
/// Cost:    a copy is one reference count. An operation allocates nothing in steady state.
class bulk {
public:
    bulk() noexcept = default;  ///< Empty: 0 bytes. So is one that was moved from.
    bulk(const bulk&) noexcept = default;
    bulk& operator=(const bulk&) noexcept = default;
    bulk(bulk&& other) noexcept
        : source_(std::move(other.source_)),
          offset_(std::exchange(other.offset_, 0)),
          bytes_(std::exchange(other.bytes_, 0)) {}
    bulk& operator=(bulk&& other) noexcept {
        bulk moved(std::move(other));
        std::swap(source_, moved.source_);
        std::swap(offset_, moved.offset_);
        std::swap(bytes_, moved.bytes_);
        return *this;
    }
    ~bulk() = default;

    explicit operator bool() const noexcept { return source_ != nullptr; }
    std::uint64_t bytes() const noexcept { return bytes_; }
    /// What the owner allows: to read, to write, or both.
    access rights() const noexcept;
    /// The descriptor carries its bytes: pulling needs no communication.
    bool is_inside() const noexcept;
    /// The bytes themselves, if they are in this process, contiguous and still exposed. Otherwise
    /// empty; also empty if the descriptor was sent away and came back: it does not keep the memory
    /// alive, so the bytes could vanish while in use. pull() and push() check for that, and copy.
    mutable_bytes local() const noexcept;
    /// The owning peer; empty if unreachable.
    peer from() const;
    /// A subrange of the same memory.
    /// Failure: throws error{invalid} past the end.
    bulk part(std::uint64_t offset, std::uint64_t bytes) const;

    /// Reads from `offset` into local memory, filling it. Parks the ULT or thread until done.
    /// Throws amalgam::error.
    void pull(std::uint64_t offset, const segments& into, const bulk_options& how = {}) const;
    void pull(const segments& into, const bulk_options& how = {}) const { pull(0, into, how); }
    /// The same, but returns failures instead of throwing.
    result<void> try_pull(std::uint64_t offset, const segments& into,
                          const bulk_options& how = {}) const;
    result<void> try_pull(const segments& into, const bulk_options& how = {}) const {
        return try_pull(0, into, how);
    }
    /// Starts it. The local bytes are borrowed until the future is ready; the segment list is
    /// copied. Canceling or destroying the future cancels the transfer and waits until the bytes
    /// are the caller's again, if the caller can wait (not in a tasklet, nor in virtual time
    /// outside a ULT). A child of fork() never waits: transfers continue only in the parent.
    future<void> start_pull(std::uint64_t offset, const segments& into,
                            const bulk_options& how = {}) const;
    future<void> start_pull(const segments& into, const bulk_options& how = {}) const {
        return start_pull(0, into, how);
    }
    /// Reads all of it, as elements. Failure: also error{invalid} if it is not a whole number of
    /// them.
    template <typename T = std::byte>
    std::vector<T> pull_all(const bulk_options& how = {}) const {
        static_assert(std::is_trivially_copyable_v<T>, "T must be trivially copyable");
        std::vector<T> all(elements(sizeof(T)));
        pull(0, all, how);
        return all;
    }

    /// Writes local memory to `offset`. On success all bytes are in place, on every transport and
    /// over whatever paths: anything the caller then sends, calls or posts, to any peer, comes
    /// after them. Before that, some bytes may have arrived, in any order. Otherwise like pull().
    void push(std::uint64_t offset, const const_segments& from, const bulk_options& how = {}) const;
    void push(const const_segments& from, const bulk_options& how = {}) const {
        push(0, from, how);
    }
    result<void> try_push(std::uint64_t offset, const const_segments& from,
                          const bulk_options& how = {}) const;
    result<void> try_push(const const_segments& from, const bulk_options& how = {}) const {
        return try_push(0, from, how);
    }
    future<void> start_push(std::uint64_t offset, const const_segments& from,
                            const bulk_options& how = {}) const;
    future<void> start_push(const const_segments& from, const bulk_options& how = {}) const {
        return start_push(0, from, how);
    }

    /// Reads all of it chunk by chunk: `work(const_bytes chunk)` or `work(chunk, offset)` runs for
    /// each, in order, in the caller, while the next ones are in flight. Memory: `depth` buffers of
    /// `chunk` bytes. An exception from `work` cancels what is in flight and propagates.
    template <typename Work>
    void pull_pipelined(std::size_t chunk, std::size_t depth, Work&& work,
                        const pipeline_options& how = {}) const {
        pull_pipeline(
            chunk, depth,
            [](void* context, mutable_bytes bytes, std::uint64_t offset) {
                auto& call = *static_cast<std::remove_reference_t<Work>*>(context);
                if constexpr (std::is_invocable_v<Work&, const_bytes, std::uint64_t>) {
                    call(const_bytes(bytes), offset);
                } else {
                    call(const_bytes(bytes));
                }
            },
            erased(work), how);
    }
    /// Writes all of it chunk by chunk: `fill(mutable_bytes chunk)` or `fill(chunk, offset)`
    /// produces each, in order, while earlier ones are in flight. Otherwise like pull_pipelined().
    template <typename Fill>
    void push_pipelined(std::size_t chunk, std::size_t depth, Fill&& fill,
                        const pipeline_options& how = {}) const {
        push_pipeline(
            chunk, depth,
            [](void* context, mutable_bytes bytes, std::uint64_t offset) {
                auto& call = *static_cast<std::remove_reference_t<Fill>*>(context);
                if constexpr (std::is_invocable_v<Fill&, mutable_bytes, std::uint64_t>) {
                    call(bytes, offset);
                } else {
                    call(bytes);
                }
            },
            erased(fill), how);
    }

    /// Its name in signatures; see type_name().
    static constexpr std::string_view amalgam_type_name = "bulk";

    // For the codec and the functions that make descriptors.
    bulk(std::shared_ptr<const detail::bulk_source> source, std::uint64_t offset,
         std::uint64_t bytes) noexcept
        : source_(std::move(source)), offset_(offset), bytes_(bytes) {}
    /// Wire form for this pair of engines; throws if it cannot be sent.
    detail::bulk_image to_send(const detail::origin* between) const;
    /// Decodes a received descriptor; returns null, or what is wrong with it.
    static const char* receive(detail::received_bulk& image, const detail::origin* between,
                               bulk& into);

private:
    friend class transfers;
    friend class transfer_group;
    /// Throws error{invalid} where the caller would wait forever for a transfer.
    void check_may_wait() const;
    template <typename Work>
    static void* erased(Work& work) noexcept {
        return const_cast<void*>(static_cast<const void*>(std::addressof(work)));
    }
    std::size_t elements(std::size_t bytes_each) const;
    void pull_pipeline(std::size_t chunk, std::size_t depth, detail::pipeline_step work,
                       void* context, const pipeline_options& how) const;
    void push_pipeline(std::size_t chunk, std::size_t depth, detail::pipeline_step fill,
                       void* context, const pipeline_options& how) const;

    std::shared_ptr<const detail::bulk_source> source_;
    std::uint64_t offset_ = 0;
    std::uint64_t bytes_ = 0;
};

}  // namespace amalgam

#include <amalgam/bulk/detail/bulk_codec.hpp>
