#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/result.hpp>

namespace amalgam {

/// One attribute, where its list lies.
struct attribute {
    std::string_view name;
    const_bytes value;     ///< Aligned to 8. Empty while it is open.
    bool is_open = false;  ///< Of a query: the name is known, the value is asked for.

    std::string_view text() const noexcept {
        return {reinterpret_cast<const char*>(value.data()), value.size()};
    }
    /// The value as a number in decimal, as to_string() writes it; nothing where it is none, or
    /// does not fit T.
    template <typename T>
    requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) std::optional<T> number()
    const noexcept {
        T read{};
        const std::string_view all = text();
        const auto [end, why] = std::from_chars(all.data(), all.data() + all.size(), read);
        if (why != std::errc() || end != all.data() + all.size() || all.empty())
            return std::nullopt;
        return read;
    }
};

/// Attributes in one piece of memory that somebody else owns, in the order they were added.
///
/// Owner:   borrows the bytes, which are aligned to 8.
/// Threads: like a pointer to constant bytes.
class attribute_view {
public:
    class iterator;

    /// Of nothing.
    attribute_view() noexcept = default;
    /// What attribute_list::bytes() gave, perhaps elsewhere: nobody vouches for these.
    /// Failure: `invalid`, with what is wrong.
    static result<attribute_view> parse(const_bytes bytes);

    iterator begin() const noexcept;
    iterator end() const noexcept;
    std::size_t size() const noexcept { return count_; }  ///< Attributes.
    bool empty() const noexcept { return count_ == 0; }
    /// Cost: a look at each attribute before it.
    std::optional<attribute> find(std::string_view name) const noexcept;
    const_bytes bytes() const noexcept { return bytes_; }
    /// The same attributes, in a copy of their bytes.
    attribute_view rebased(const_bytes copy) const noexcept { return {copy, count_}; }

private:
    friend class attribute_list;
    attribute_view(const_bytes bytes, std::uint32_t count) noexcept
        : bytes_(bytes), count_(count) {}

    const_bytes bytes_;
    std::uint32_t count_ = 0;
};

/// What a resource is, or what a query asks for: names, each with a value or open.
///
///     attribute_list server{{"type", "server"}, {"rack", "7"}};
///     attribute_list wanted{{"type", "server"}};
///     wanted.ask("rack");
///
/// Owner:   owns its bytes: one piece of memory, which is also what travels.
/// Threads: like a plain value.
/// Failure: throws error{invalid} for a name that is empty, longer than `max_name_bytes`, or for
///          add() and ask() there already; error{too_large} past `max_bytes` or `max_attributes`;
///          std::bad_alloc; and then has changed nothing.
/// Cost:    add() copies the value; memory grows by doubling.
class attribute_list {
public:
    static constexpr std::size_t max_name_bytes = 255;
    static constexpr std::size_t max_attributes = 256;
    static constexpr std::size_t max_bytes = std::size_t{1} << 20;  ///< Of a whole list.

    attribute_list() noexcept = default;
    attribute_list(std::initializer_list<std::pair<std::string_view, std::string_view>> all);
    explicit attribute_list(attribute_view from);

    attribute_list& add(std::string_view name, const_bytes value);
    attribute_list& add(std::string_view name, std::string_view text);
    /// The same, but where it is there already, open too, it gets this value, in its place.
    attribute_list& set(std::string_view name, const_bytes value);
    attribute_list& set(std::string_view name, std::string_view text);
    /// Sets all of these, which all have values.
    attribute_list& set_all(const attribute_view& these);
    /// An open attribute: a query that has it is answered with its value, if the resource has one.
    /// `room_bytes` are kept for that value, so that fill() moves nothing.
    attribute_list& ask(std::string_view name, std::size_t room_bytes = 64);

    /// Gives an open attribute its value. False: there is no open one of that name.
    bool fill(std::string_view name, const_bytes value);
    /// Fills all open attributes that `from` has a value for.
    void fill_from(const attribute_view& from);

    /// The value of an attribute; nothing where there is none, or it is open. Valid until the list
    /// changes.
    std::optional<const_bytes> find(std::string_view name) const noexcept;
    /// The same as text; "" where there is none.
    std::string_view text(std::string_view name) const noexcept;
    /// The same as a number, as attribute::number() reads it: number<int>("load").
    template <typename T>
    std::optional<T> number(std::string_view name) const noexcept {
        const auto one = view().find(name);
        return one && !one->is_open ? one->number<T>() : std::nullopt;
    }

    std::size_t size() const noexcept { return view().size(); }
    bool empty() const noexcept { return size() == 0; }
    attribute_view view() const noexcept;
    operator attribute_view() const noexcept { return view(); }
    /// As they travel. Valid until the list changes.
    const_bytes bytes() const noexcept { return view().bytes(); }

private:
    void append(std::string_view name, const_bytes value, std::size_t room, bool is_open);

    std::vector<std::uint64_t> words_;  // So that values are aligned to 8. Empty while it is.
};

class attribute_view::iterator {
public:
    using iterator_category = std::input_iterator_tag;
    using value_type = attribute;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = attribute;

    attribute operator*() const noexcept;
    iterator& operator++() noexcept;
    void operator++(int) noexcept { ++*this; }
    friend bool operator==(const iterator&, const iterator&) = default;

private:
    friend class attribute_view;
    explicit iterator(const std::byte* at) noexcept : at_(at) {}
    const std::byte* at_;
};

/// For logs and people: {type: "server", rack: "7", load: ?}. Bytes that are no text in hex.
std::string to_string(const attribute_view& what);

}  // namespace amalgam
