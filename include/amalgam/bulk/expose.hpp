#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/bulk/segments.hpp>
#include <amalgam/core/buffer.hpp>
#include <amalgam/rpc/engine.hpp>

namespace amalgam {

class bulk_buffer;

namespace detail {
struct shown_memory;
std::shared_ptr<shown_memory> show(engine_core& core, scatter segments, access rights,
                                   std::shared_ptr<void> holder);
amalgam::bulk whole_of(std::shared_ptr<shown_memory> memory);
/// Throws error{invalid} for null, and unless these are rights to what is const.
void check_shared(const void* memory, access of_const);
}  // namespace detail

/// Memory that peers may read or write while this object lives. Converts to the bulk to send.
///
/// Owner:   the caller owns the bytes, which must be there as long as this is.
/// Threads: like a plain value. Destroyed, or closed, by who can wait.
/// Cost:    one registration per port of the engine; destruction one hop to its stream.
class [[nodiscard]] exposed {
public:
    exposed() noexcept = default;
    exposed(exposed&&) noexcept = default;
    exposed& operator=(exposed&& other) noexcept {
        exposed taken(std::move(other));  // Which may be this.
        close();
        memory_ = std::move(taken.memory_);
        bulk_ = std::move(taken.bulk_);
        return *this;
    }
    ~exposed() { close(); }

    /// Nobody touches the bytes any more when it returns; transfers that others have under way
    /// end with `denied`. Copies of the descriptor name nothing that works.
    void close() noexcept;

    const bulk& descriptor() const noexcept { return bulk_; }
    operator const bulk&() const noexcept { return bulk_; }

    // For expose().
    explicit exposed(std::shared_ptr<detail::shown_memory> memory);

private:
    std::shared_ptr<detail::shown_memory> memory_;
    bulk bulk_;
};

/// Lets peers read or write these bytes, as the rights say.
/// Failure: throws error{no_memory} at a limit of a port, error{closed} after the engine's end,
///          error{invalid} for rights there are none of and for more bytes than memory has.
exposed expose(engine& where, const segments& bytes, access rights);
/// Lets peers read these bytes.
exposed expose(engine& where, const const_segments& bytes);

/// The same for memory that the descriptor keeps: a contiguous container is moved in, and is freed
/// when the last copy of the descriptor is gone, here and where it was sent to. So it can go
/// with a one-way call, and be the result of a handler.
template <typename Owner>
requires(detail::one_segment<Owner&> && !std::is_lvalue_reference_v<Owner> &&
         std::is_nothrow_destructible_v<Owner>) bulk
    expose_owned(engine& where, Owner&& bytes, access rights = access::read) {
    auto held = std::make_shared<std::remove_cvref_t<Owner>>(std::move(bytes));
    const mutable_bytes all = as_writable_bytes_of(*held);
    return detail::whole_of(detail::show(where.core(), scatter(&all, 1), rights, std::move(held)));
}
/// The same for a container that others hold, too: it is kept until both they and the last copy of
/// the descriptor let go of it. One that is const can be read only.
/// Failure: throws error{invalid} for null, and for a const one that is to be written.
template <typename Owner>
requires(detail::one_segment<Owner&>) bulk
    expose_owned(engine& where, std::shared_ptr<Owner> bytes, access rights = access::read) {
    detail::check_shared(bytes.get(), detail::one_mutable_segment<Owner&> ? access::read : rights);
    const const_bytes all = as_bytes_of(*bytes);
    const mutable_bytes writable(const_cast<std::byte*>(all.data()), all.size());
    return detail::whole_of(
        detail::show(where.core(), scatter(&writable, 1), rights,
                     std::const_pointer_cast<std::remove_const_t<Owner>>(std::move(bytes))));
}
bulk expose_owned(engine& where, buffer&& bytes, access rights = access::read);
/// A buffer of a cache is registered already, with the rights of all its buffers; it goes back
/// there in the end.
/// Failure: throws error{invalid} when the cache belongs to another engine.
bulk expose_owned(engine& where, bulk_buffer&& bytes);

}  // namespace amalgam
