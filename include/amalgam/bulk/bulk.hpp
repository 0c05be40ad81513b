#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <amalgam/bulk/segments.hpp>
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

/// How a pull or push goes about it. Every field has a default that suits most.
struct bulk_options {
    /// Time for all of it; within a handler the earlier of this and the handler's own counts. It
    /// ends a little later: see "Failure" of bulk.
    std::chrono::nanoseconds within = std::chrono::nanoseconds::max();
    /// It moves in pieces of this size, a few at a time; 0: as suits the engine.
    std::size_t chunk_bytes = 0;
    /// Told how many bytes have moved, after each piece, on the engine's stream, or in the call
    /// itself for bytes that came inside the descriptor: it must not wait. What it throws ends
    /// the transfer with `handler_failed`.
    std::function<void(std::uint64_t bytes_done)> on_progress{};
    /// Over all ways at once that lead to the engine whose memory it is, when that was looked up
    /// by several addresses (see engine::lookup()) or has looked this engine up so: each takes
    /// the next piece when it is done with one. Pays where the ways are wires of their own.
    bool striped = false;
};

/// How a pipelined transfer goes about it.
struct pipeline_options {
    std::chrono::nanoseconds within = std::chrono::nanoseconds::max();  ///< For all of it.
    /// Where its `depth` buffers of `chunk` bytes come from; null: the heap.
    bulk_cache* buffers = nullptr;
};

/// Memory of some process that may be read or written from elsewhere: what expose() gives,
/// and what who received it as an argument or result pulls from and pushes to.
///
///     server.define("store", [](bulk data) { auto copy = data.pull_all(); … });
///     store.on(peer)(expose(client, vector));
///
/// The bytes form one logical range, whatever segments they lie in. What travels is this
/// descriptor, never the bytes, but for short read-only ones, which ride inside. It can be
/// passed on to a third process when the engine it came from listens.
/// Owner:   a plain value. Who exposed the memory says how long it is there: see exposed and
///          expose_owned(). The engine that received or made it must outlive its use.
/// Threads: like a plain value; operations from any ULT or thread, also several at once.
/// Failure: invalid (past the end, nothing named), denied (wrong rights, or the memory is not
///          exposed any more, by an owner that was started again neither), timed_out, canceled,
///          unreachable, disconnected, closed, no_memory.
///          Part of the bytes may have moved then; after the end none moves, so both memories may
///          be used for something else, and a later push is not torn by an earlier one. But:
///          when a push ends as disconnected, unreachable or closed, its owner may still write
///          what it had received, until it notices that the connection has ended. A ULT that is
///          canceled while it waits in a push gets `canceled` even so.
///          So the end comes later than the deadline or cancel: a push waits until the owner has
///          answered all that left, which is one round trip behind what is on its way. An
///          owner that stands still loses its connection after the silence limit (5 s unless
///          set, see port_options); with several ways, each may take so long.
///          What throws lets std::bad_alloc through when there is no memory to begin with.
/// Cost:    a copy is one reference count. An operation allocates nothing in steady state.
class bulk {
public:
    bulk() noexcept = default;  ///< Names nothing: 0 bytes. So does one that was moved from.
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
    access rights() const noexcept;
    /// It came with its bytes: pulling asks nobody.
    bool is_inside() const noexcept;
    /// The memory is this process's own, contiguous, and exposed still: there it is. Else empty,
    /// and also when the descriptor was sent away and came back: it does not keep what it names, so
    /// the bytes could be gone while somebody looks at them. pull() and push() check that, and then
    /// copy.
    mutable_bytes local() const noexcept;
    /// Whose memory it is. Nobody when that cannot be reached.
    peer from() const;
    /// The same memory, but only this range of it.
    /// Failure: throws error{invalid} past the end.
    bulk part(std::uint64_t offset, std::uint64_t bytes) const;

    /// Reads into local memory, as many bytes as that has, from `offset`. Returns when they are
    /// there: parks the ULT or thread. Throws amalgam::error.
    void pull(std::uint64_t offset, const segments& into, const bulk_options& how = {}) const;
    void pull(const segments& into, const bulk_options& how = {}) const { pull(0, into, how); }
    /// The same, but returns a failure instead of throwing it.
    result<void> try_pull(std::uint64_t offset, const segments& into,
                          const bulk_options& how = {}) const;
    result<void> try_pull(const segments& into, const bulk_options& how = {}) const {
        return try_pull(0, into, how);
    }
    /// Begins it. The local bytes are lent until the future is ready; the list is copied. To
    /// cancel() or destroy the future cancels the transfer and waits until the bytes are the
    /// caller's again, wherever the caller can wait (not in a tasklet, nor in virtual time
    /// outside of a ULT). A child of fork() waits for none: they go on in the parent alone.
    future<void> start_pull(std::uint64_t offset, const segments& into,
                            const bulk_options& how = {}) const;
    future<void> start_pull(const segments& into, const bulk_options& how = {}) const {
        return start_pull(0, into, how);
    }
    /// All of it, as elements. Failure: also error{invalid} when it is no whole number of them.
    template <typename T = std::byte>
    std::vector<T> pull_all(const bulk_options& how = {}) const {
        static_assert(std::is_trivially_copyable_v<T>, "its bytes are not its value");
        std::vector<T> all(elements(sizeof(T)));
        pull(0, all, how);
        return all;
    }

    /// Writes local memory there, from `offset`. Once it has ended well all bytes are there, on
    /// every transport and by whichever ways they went: what the caller sends, calls or posts then,
    /// to anybody, comes after them. Before that some may be there, in any order. Otherwise as
    /// pull().
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

    /// Reads all of it chunk by chunk: `work(const_bytes chunk)` or `work(chunk, offset)` runs
    /// for each, in order, in the caller, while the next ones are on their way. Memory: `depth`
    /// buffers of `chunk` bytes. What `work` throws cancels what flies, and surfaces.
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
    /// Writes all of it chunk by chunk: `fill(mutable_bytes chunk)` or `fill(chunk, offset)` makes
    /// each, in order, while earlier ones are on their way. Otherwise as pull_pipelined().
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

    static constexpr std::string_view amalgam_type_name = "bulk";

    // For the codec and the makers.
    bulk(std::shared_ptr<const detail::bulk_source> source, std::uint64_t offset,
         std::uint64_t bytes) noexcept
        : source_(std::move(source)), offset_(offset), bytes_(bytes) {}
    /// As it travels between these; throws when it cannot.
    detail::bulk_image to_send(const detail::origin* between) const;
    /// From what arrived; null, or what is wrong with it.
    static const char* receive(detail::received_bulk& image, const detail::origin* between,
                               bulk& into);

private:
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
