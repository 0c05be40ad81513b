#pragma once

#include <type_traits>
#include <utility>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/bulk/segments.hpp>
#include <amalgam/core/buffer.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/rpc/engine.hpp>

namespace amalgam {

class bulk_buffer;

namespace detail {
struct shown_memory;
std::shared_ptr<shown_memory> show(engine_core& core, scatter segments, access rights,
                                   std::shared_ptr<void> holder, bool shareable);
amalgam::bulk whole_of(std::shared_ptr<shown_memory> memory);
/// Throws error{invalid} for null, and for write access to const memory.
void check_shared(const void* memory, access of_const);
}  // namespace detail

/// Options of exposed memory.
struct expose_options {
    /// Whether who was sent the descriptor may pass it on, to whomever it wants to. Of interest
    /// only where peers prove who they are (tcp+tls): there a descriptor works for the peer that it
    /// was sent to, and others get `denied`; and for other users that shared memory lets in, where
    /// it works for their processes. Elsewhere it works for whoever has it.
    bool shareable = false;
};

/// Memory that peers may read or write while this object lives. Converts to the bulk to send.
///
/// Owner:   the caller owns the bytes, which must outlive this.
/// Threads: like a plain value. Close or destroy it only where the caller can wait.
/// Cost:    one registration per port of the engine; destruction takes one hop to its stream.
class [[nodiscard]] exposed {
public:
    exposed() noexcept = default;
    exposed(exposed&&) noexcept = default;
    exposed& operator=(exposed&& other) noexcept {
        exposed taken(std::move(other));  // May be this object.
        close();
        memory_ = std::move(taken.memory_);
        bulk_ = std::move(taken.bulk_);
        return *this;
    }
    ~exposed() { close(); }

    /// On return no peer accesses the bytes; transfers in flight from peers end with `denied`.
    /// Copies of the descriptor no longer work.
    void close() noexcept;

    /// What to send to a peer.
    const bulk& descriptor() const noexcept { return bulk_; }
    operator const bulk&() const noexcept { return bulk_; }

    // For expose().
    explicit exposed(std::shared_ptr<detail::shown_memory> memory);

private:
    std::shared_ptr<detail::shown_memory> memory_;
    bulk bulk_;
};

/// Lets peers access these bytes with the given rights.
/// Failure: throws error{no_memory} at a limit of a port, error{closed} after the engine has ended,
///          error{invalid} for invalid rights and for more bytes than memory can hold.
exposed expose(engine& where, const segments& bytes, access rights, const expose_options& how = {});
/// Gives peers read access to these bytes.
exposed expose(engine& where, const const_segments& bytes, const expose_options& how = {});

/// The same, but the descriptor owns the memory: a contiguous container is moved in, and freed when
/// the last copy of the descriptor is gone, here and on peers. So it may be sent in a one-way call,
/// or be a handler's result.
template <typename Owner>
requires(detail::one_segment<Owner&> && !std::is_lvalue_reference_v<Owner> &&
         std::is_nothrow_destructible_v<Owner>) bulk
    expose_owned(engine& where, Owner&& bytes, access rights = access::read,
                 const expose_options& how = {}) {
    auto held = std::make_shared<std::remove_cvref_t<Owner>>(std::move(bytes));
    const mutable_bytes all = as_writable_bytes_of(*held);
    return detail::whole_of(
        detail::show(where.core(), scatter(&all, 1), rights, std::move(held), how.shareable));
}
/// The same for a shared container: it is kept until both its other holders and the last copy of
/// the descriptor release it. A const one can only be read.
/// Failure: throws error{invalid} for null, and for write access to a const container.
template <typename Owner>
requires(detail::one_segment<Owner&>) bulk
    expose_owned(engine& where, std::shared_ptr<Owner> bytes, access rights = access::read,
                 const expose_options& how = {}) {
    detail::check_shared(bytes.get(), detail::one_mutable_segment<Owner&> ? access::read : rights);
    const const_bytes all = as_bytes_of(*bytes);
    const mutable_bytes writable(const_cast<std::byte*>(all.data()), all.size());
    return detail::whole_of(detail::show(
        where.core(), scatter(&writable, 1), rights,
        std::const_pointer_cast<std::remove_const_t<Owner>>(std::move(bytes)), how.shareable));
}
bulk expose_owned(engine& where, buffer&& bytes, access rights = access::read,
                  const expose_options& how = {});
/// A cache buffer is already registered, with the rights of its cache; it returns there in the end.
/// Failure: throws error{invalid} if the cache belongs to another engine.
bulk expose_owned(engine& where, bulk_buffer&& bytes);

}  // namespace amalgam
