#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/rpc/archive_context.hpp>
#include <amalgam/rpc/body.hpp>
#include <amalgam/rpc/detail/view_room.hpp>
#include <amalgam/rpc/detail/wire_types.hpp>
#include <amalgam/rpc/detail/xdr.hpp>

namespace amalgam {

/// Encoding of values. Each message states its encoding, and every receiver reads both.
enum class encoding : std::uint8_t {
    /// Little-endian, numbers in their own width; contiguous ones are copied as one block.
    native,
    xdr  ///< RFC 4506: big-endian, in 4-byte units.
};

template <typename T>
struct codec;  // See codec.hpp.

namespace detail {
struct origin;

/// Throws error{too_large}: the container has more elements than a count can express.
[[noreturn]] void throw_too_many(std::size_t elements);
}  // namespace detail

/// Writes values into a message body, in the order given. See docs/wire/rpc.md.
///
/// `Into` is a body, or any type with its extend() and size(). Users see it as the `Archive` of
/// their own `serialize(archive)`: `a(x, y)`, `a & x`, `a << x`.
/// Owner:   borrows the body.
/// Threads: one at a time.
/// Failure: throws error{too_large} for a container of more than 2^32-1 elements, error{no_memory}.
/// Cost:    one bounds check per value or contiguous range; no allocation within the body's inline
///          space. The encoding is one flag, tested per value.
template <typename Into>
class basic_archive_writer {
public:
    /// For serialize() functions that read and write apart.
    static constexpr bool loading = false;
    using is_loading = std::false_type;  ///< The name boost and cereal use.
    using is_saving = std::true_type;    ///< Likewise.

    explicit basic_archive_writer(Into& into, encoding as = encoding::native,
                                  const detail::origin* between = nullptr) noexcept
        : into_(into), between_(between), xdr_(as == encoding::xdr) {}

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

    bool is_xdr() const noexcept { return xdr_; }

    /// A number or enum in its own width; 4 or 8 bytes in XDR.
    template <detail::wire_number T>
    void scalar(T value) {
        if constexpr (sizeof(T) >= 4) {
            const auto word = detail::to_word(value);
            store_le(into_.extend(sizeof(T)), xdr_ ? detail::byte_swapped(word) : word);
        } else if (xdr_) {
            store_be(into_.extend(4), detail::to_word(value));
        } else {
            store_le(into_.extend(sizeof(T)), value);
        }
    }
    /// Raw bytes; XDR pads with zeros to a multiple of 4.
    void raw(const void* from, std::size_t bytes) {
        const std::size_t whole = xdr_ ? detail::xdr_padded(bytes) : bytes;
        std::byte* to = into_.extend(whole);
        // The last word before the bytes, as a memset of 1 to 3 bytes is a call.
        if (whole != bytes) store_le(to + whole - 4, std::uint32_t{0});
        if (bytes != 0) std::memcpy(to, from, bytes);
    }
    /// Contiguous elements, without a count.
    template <detail::bulk T>
    void elements(const T* from, std::size_t number) {
        if (!xdr_ || detail::xdr_is_plain<T>) return raw(from, number * sizeof(T));
        std::byte* to = into_.extend(number * detail::xdr_bytes<T>);
        for (const T* each = from; each != from + number; ++each) {
            detail::to_xdr(to, *each);
            to += detail::xdr_bytes<T>;
        }
    }
    /// A count, then the elements, aligned so that a reader can view them in place.
    template <detail::bulk T>
    void block(const T* from, std::size_t number) {
        count(number);
        align(detail::wire_alignment<T>);
        elements(from, number);
    }
    /// Zero padding to a multiple of `boundary`, a power of two, from the start of the body;
    /// nothing in XDR.
    void align(std::size_t boundary) {
        if (xdr_) return;
        std::size_t missing = (0 - into_.size()) & (boundary - 1);
        if (missing != 0) std::memset(into_.extend(missing), 0, missing);
    }
    /// The number of elements that follow.
    void count(std::size_t elements) {
        if (elements > std::numeric_limits<std::uint32_t>::max()) detail::throw_too_many(elements);
        scalar(static_cast<std::uint32_t>(elements));
    }
    /// Sender and receiver, where encoding depends on them; null if unknown.
    const detail::origin* between() const noexcept { return between_; }
    /// The object given for this call, its procedure or its engine (see archive_context): null if
    /// there is none, if it is no `T`, and in archives of no engine.
    template <typename T>
    T* context() const noexcept {
        return detail::context_of(between_).get<T>();
    }

private:
    Into& into_;
    const detail::origin* between_;
    bool xdr_;
};

/// Writes the body of a message.
using archive_writer = basic_archive_writer<body>;

/// Reads what archive_writer wrote, from untrusted bytes.
///
/// Owner:   borrows the bytes. Views read from it point into them or, where the XDR bytes differ
///          from the view's type, into the reader's memory: they live as long as both.
/// Threads: one at a time.
/// Failure: sticky, not thrown: after the first error ok() is false, numbers read as 0 and
///          containers as empty, so loops over the input end. Throws error{no_memory}.
/// Cost:    memory grows only as elements are found in the input, so a short message never
///          allocates much.
class archive_reader {
public:
    /// As of the writer, with the other value.
    static constexpr bool loading = true;
    using is_loading = std::true_type;  ///< Likewise.
    using is_saving = std::false_type;  ///< Likewise.
    /// Maximum nesting depth of user types (a list of pointers, a tree).
    static constexpr unsigned max_depth = 100;

    /// `from` starts at the start of the body; it must be aligned to 8 if views are read.
    explicit archive_reader(const_bytes from, encoding as = encoding::native,
                            const detail::origin* between = nullptr) noexcept
        : begin_(from.data()),
          at_(begin_),
          end_(begin_ + from.size()),
          between_(between),
          countable_(from.size()),
          xdr_(as == encoding::xdr) {}
    archive_reader(const archive_reader&) = delete;
    archive_reader& operator=(const archive_reader&) = delete;

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

    bool is_xdr() const noexcept { return xdr_; }
    bool ok() const noexcept { return why_ == nullptr; }
    /// What is wrong, in a few words; "nothing" while ok().
    std::string_view why() const noexcept { return ok() ? "nothing" : why_; }
    std::size_t remaining() const noexcept { return static_cast<std::size_t>(end_ - at_); }

    /// Marks the rest as unreadable. `why` is a string literal: "an index past the last
    /// alternative".
    void fail(const char* why) noexcept {
        if (ok()) why_ = why;
        at_ = end_;
    }
    template <detail::wire_number T>
    T scalar() noexcept {
        using word = detail::wire_word<T>;
        const std::size_t bytes = xdr_ ? sizeof(word) : sizeof(T);
        if (remaining() < bytes) {
            fail("unexpected end of data");
            return T{};
        }
        const std::byte* const from = std::exchange(at_, at_ + bytes);
        if constexpr (sizeof(T) >= 4) {
            const word found = load_le<word>(from);
            return detail::from_word<T>(xdr_ ? detail::byte_swapped(found) : found);
        } else {
            if (!xdr_) return load_le<T>(from);
            T value;
            if (detail::from_xdr(from, value)) return value;
            fail("a number is out of range for its type");
            return T{};
        }
    }
    /// The next bytes, borrowed; empty after an error.
    const_bytes raw(std::size_t bytes) noexcept {
        const std::size_t padding = xdr_ ? (0 - bytes) & 3 : 0;
        if (remaining() < bytes || remaining() - bytes < padding) {
            fail("unexpected end of data");
            return {};
        }
        const_bytes view(at_, bytes);
        at_ += bytes + padding;
        return view;
    }
    /// Reads `number` elements; leaves `to` unchanged if the input is too short.
    template <detail::bulk T>
    void elements(T* to, std::size_t number) noexcept {
        if (!xdr_ || detail::xdr_is_plain<T>) {
            const const_bytes from = raw(number * sizeof(T));
            if (!from.empty()) std::memcpy(static_cast<void*>(to), from.data(), from.size());
            return;
        }
        const const_bytes from = raw(number * detail::xdr_bytes<T>);
        bool good = true;
        for (std::size_t at = 0; at < from.size(); at += detail::xdr_bytes<T>)
            good &= detail::from_xdr(from.data() + at, *to++);
        if (!good) fail("a number is out of range for its type");
    }
    /// Element count of a block, checked against the input; read them with elements() or view().
    template <detail::bulk T>
    std::size_t block() noexcept {
        const std::size_t number = count(sizeof(T));
        align(detail::wire_alignment<T>);
        const bool other = xdr_ && !detail::xdr_is_plain<T>;
        if (number * (other ? detail::xdr_bytes<T> : sizeof(T)) <= remaining()) return number;
        fail("unexpected end of data");
        return 0;
    }
    /// The elements of a block: in place if possible, else decoded into memory kept by the reader,
    /// at most twice the size of the message plus 4 KiB.
    template <detail::bulk T>
    std::span<const T> view(std::size_t number) {
        const bool aligned = reinterpret_cast<std::uintptr_t>(at_) % alignof(T) == 0;
        if (aligned && (!xdr_ || detail::xdr_is_plain<T>)) {
            const const_bytes from = raw(number * sizeof(T));
            return {reinterpret_cast<const T*>(from.data()), from.size() / sizeof(T)};
        }
        if (number == 0) return {};
        if (!decoded_) decoded_ = std::make_unique<detail::view_room>();
        T* const to = reinterpret_cast<T*>(decoded_->take(number * sizeof(T), alignof(T)));
        elements(to, number);
        if (!ok()) return {};
        return {to, number};
    }
    void align(std::size_t boundary) noexcept {
        if (!xdr_) raw((0 - static_cast<std::size_t>(at_ - begin_)) & (boundary - 1));
    }
    /// The number of elements that follow, each of at least `each` bytes; 0 after an error.
    std::size_t count(std::size_t each) noexcept {
        std::size_t elements = scalar<std::uint32_t>();
        // The second bound is for user types that encode to no bytes: nested containers of them
        // could multiply.
        if (elements > remaining() / (each == 0 ? 1 : each) || elements > countable_) {
            fail("a length exceeds the message");
            return 0;
        }
        countable_ -= elements;
        return elements;
    }
    /// Called on entering each user type: returns false and fails when they nest too deep.
    bool enter() noexcept {
        if (++depth_ > max_depth) fail("values are nested too deeply");
        return ok();
    }
    void leave() noexcept { --depth_; }
    /// As the writer's; the peer is the sender.
    const detail::origin* between() const noexcept { return between_; }
    /// The object given for this call, its procedure or its engine (see archive_context): null if
    /// there is none, if it is no `T`, and in archives of no engine.
    template <typename T>
    T* context() const noexcept {
        return detail::context_of(between_).get<T>();
    }

private:
    const std::byte* begin_;
    const std::byte* at_;
    const std::byte* end_;
    const detail::origin* between_;
    const char* why_ = nullptr;
    std::size_t countable_;  // Container elements that may still be read.
    unsigned depth_ = 0;
    bool xdr_;
    std::unique_ptr<detail::view_room> decoded_;  // Backs views that cannot point into the message.
};

}  // namespace amalgam

#include <amalgam/rpc/codec.hpp>
