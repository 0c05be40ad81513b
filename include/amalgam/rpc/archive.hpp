#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>

#include <amalgam/core/bytes.hpp>
#include <amalgam/rpc/body.hpp>

namespace amalgam {

template <typename T>
struct codec;  // See codec.hpp.

namespace detail {
struct origin;

/// Throws error{too_large}: a container has more elements than a count can say.
[[noreturn]] void throw_too_many(std::size_t elements);
}  // namespace detail

/// Writes values into a message body: little-endian, in the order given. See docs/wire/rpc.md.
///
/// `Into` is a body, or what else has its extend() and size().
/// Users meet it as the `Archive` of their own `serialize(archive)`: `a(x, y)`, `a & x`, `a << x`.
/// Owner:   borrows the body.
/// Threads: one at a time.
/// Failure: throws error{too_large} when a container holds more than 2^32-1 elements,
///          error{no_memory}.
/// Cost:    one bounds check per value or contiguous range; no allocation within the body's
///          inline room.
template <typename Into>
class basic_archive_writer {
public:
    static constexpr bool loading = false;
    using is_loading = std::false_type;  ///< As boost and cereal name it.
    using is_saving = std::true_type;

    explicit basic_archive_writer(Into& into, const detail::origin* between = nullptr) noexcept
        : into_(into), between_(between) {}

    template <typename... T>
    basic_archive_writer& operator()(const T&... values) {
        (codec<T>::save(*this, values), ...);
        return *this;
    }
    template <typename T>
    basic_archive_writer& operator&(const T& value) {
        return (*this)(value);
    }
    template <typename T>
    basic_archive_writer& operator<<(const T& value) {
        return (*this)(value);
    }

    /// A number or enum in its own width.
    template <typename T>
    void scalar(T value) {
        store_le(into_.extend(sizeof(T)), value);
    }
    /// Bytes as they are.
    void raw(const void* from, std::size_t bytes) {
        std::byte* to = into_.extend(bytes);
        if (bytes != 0) std::memcpy(to, from, bytes);
    }
    /// Zeros up to a multiple of `boundary`, a power of two, from the body's start.
    void align(std::size_t boundary) {
        std::size_t missing = (0 - into_.size()) & (boundary - 1);
        if (missing != 0) std::memset(into_.extend(missing), 0, missing);
    }
    /// How many elements follow.
    void count(std::size_t elements) {
        if (elements > std::numeric_limits<std::uint32_t>::max()) detail::throw_too_many(elements);
        scalar(static_cast<std::uint32_t>(elements));
    }
    /// From whom to whom, where that matters; null: not known.
    const detail::origin* between() const noexcept { return between_; }

private:
    Into& into_;
    const detail::origin* between_;
};

using archive_writer = basic_archive_writer<body>;

/// Reads what archive_writer wrote, from bytes nobody vouches for.
///
/// Owner:   borrows the bytes; views read out of it point into them.
/// Threads: one at a time.
/// Failure: sticky, not thrown: past the first fault ok() is false, numbers read as 0 and
///          containers as empty, so loops over what was read end.
/// Cost:    memory is allocated only as elements are found in the bytes, so a short message
///          never takes much of it.
class archive_reader {
public:
    static constexpr bool loading = true;
    using is_loading = std::true_type;
    using is_saving = std::false_type;
    /// How deep user types may nest in one another (a list of pointers, a tree).
    static constexpr unsigned max_depth = 100;

    /// `from` starts where the body starts, at a multiple of 8 when views are read.
    explicit archive_reader(const_bytes from, const detail::origin* between = nullptr) noexcept
        : begin_(from.data()), at_(begin_), end_(begin_ + from.size()), between_(between) {}

    template <typename... T>
    archive_reader& operator()(T&&... values) {
        (codec<std::remove_cvref_t<T>>::load(*this, values), ...);
        return *this;
    }
    template <typename T>
    archive_reader& operator&(T&& value) {
        return (*this)(value);
    }
    template <typename T>
    archive_reader& operator>>(T&& value) {
        return (*this)(value);
    }

    bool ok() const noexcept { return why_ == nullptr; }
    /// What was wrong, in a few words; "nothing" while ok().
    std::string_view why() const noexcept { return ok() ? "nothing" : why_; }
    std::size_t remaining() const noexcept { return static_cast<std::size_t>(end_ - at_); }

    /// Marks the rest as unreadable. `why` is a literal: "an index past the last alternative".
    void fail(const char* why) noexcept {
        if (ok()) why_ = why;
        at_ = end_;
    }
    template <typename T>
    T scalar() noexcept {
        if (remaining() < sizeof(T)) {
            fail("it ends early");
            return T{};
        }
        T value = load_le<T>(at_);
        at_ += sizeof(T);
        return value;
    }
    /// The next bytes, borrowed; empty after a fault.
    const_bytes raw(std::size_t bytes) noexcept {
        if (remaining() < bytes) {
            fail("it ends early");
            return {};
        }
        const_bytes view(at_, bytes);
        at_ += bytes;
        return view;
    }
    void align(std::size_t boundary) noexcept {
        raw((0 - static_cast<std::size_t>(at_ - begin_)) & (boundary - 1));
    }
    /// How many elements follow, each of at least `each` bytes; 0 after a fault.
    std::size_t count(std::size_t each) noexcept {
        std::size_t elements = scalar<std::uint32_t>();
        if (elements > remaining() / std::max<std::size_t>(each, 1)) {
            fail("a length is larger than the message");
            return 0;
        }
        return elements;
    }
    /// Around each user type: false, and a fault, when they nest too deep.
    bool enter() noexcept {
        if (++depth_ > max_depth) fail("its values nest too deep");
        return ok();
    }
    void leave() noexcept { --depth_; }
    /// As the writer's: the peer is who sent it.
    const detail::origin* between() const noexcept { return between_; }

private:
    const std::byte* begin_;
    const std::byte* at_;
    const std::byte* end_;
    const detail::origin* between_;
    const char* why_ = nullptr;
    unsigned depth_ = 0;
};

}  // namespace amalgam

#include <amalgam/rpc/codec.hpp>
