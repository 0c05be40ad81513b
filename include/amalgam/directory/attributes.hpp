#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/detail/number_text.hpp>
#include <amalgam/core/result.hpp>

namespace amalgam {

/// One attribute, viewed in place in its list.
struct attribute {
    std::string_view name;  ///< Unique in its list.
    const_bytes value;      ///< Aligned to 8. Empty for an open attribute.
    bool is_open = false;   ///< In a query: the value is requested.

    std::string_view text() const noexcept {
        return {reinterpret_cast<const char*>(value.data()), value.size()};
    }
    /// The value as a decimal number, as to_string() writes it; empty if it is not a number or does
    /// not fit T.
    template <typename T>
    requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) std::optional<T> number()
    const noexcept { return detail::number_in<T>(text()); }
};

/// Read-only view of a list of attributes, in the order they were added.
///
/// Owner:   borrows the bytes, which are aligned to 8.
/// Threads: like a pointer to constant bytes.
class attribute_view {
public:
    class iterator;

    /// An empty list.
    attribute_view() noexcept = default;
    /// Parses the output of attribute_list::bytes(), received from an untrusted peer.
    /// Failure: `invalid`, with what is wrong.
    static result<attribute_view> parse(const_bytes bytes);

    iterator begin() const noexcept;
    iterator end() const noexcept;
    std::size_t size() const noexcept { return count_; }  ///< Number of attributes.
    bool empty() const noexcept { return count_ == 0; }
    /// Cost:    linear search.
    std::optional<attribute> find(std::string_view name) const noexcept;
    const_bytes bytes() const noexcept { return bytes_; }
    /// The same attributes, over a copy of their bytes.
    attribute_view rebased(const_bytes copy) const noexcept { return {copy, count_}; }

private:
    friend class attribute_list;
    attribute_view(const_bytes bytes, std::uint32_t count) noexcept
        : bytes_(bytes), count_(count) {}

    const_bytes bytes_;
    std::uint32_t count_ = 0;
};

/// Attributes of a resource or of a query: names, each with a value or open.
///
///     attribute_list server{{"type", "server"}, {"rack", "7"}};
///     attribute_list wanted{{"type", "server"}};
///     wanted.ask("rack");
///
/// Owner:   owns its bytes: one block, in wire format.
/// Threads: like a plain value.
/// Failure: throws error{invalid} for a name that is empty, longer than `max_name_bytes`, or, in
///          add() and ask(), already present; error{too_large} past `max_bytes` or
///          `max_attributes`; std::bad_alloc. On failure the list is unchanged.
/// Cost:    add() copies the value; memory grows by doubling.
class attribute_list {
public:
    static constexpr std::size_t max_name_bytes = 255;              ///< Of one name.
    static constexpr std::size_t max_attributes = 256;              ///< In one list.
    static constexpr std::size_t max_bytes = std::size_t{1} << 20;  ///< For the whole list.

    attribute_list() noexcept = default;
    attribute_list(std::initializer_list<std::pair<std::string_view, std::string_view>> all);
    explicit attribute_list(attribute_view from);

    attribute_list& add(std::string_view name, const_bytes value);
    attribute_list& add(std::string_view name, std::string_view text);
    /// Like add(), but replaces the value in place if the name is already present, even if open.
    attribute_list& set(std::string_view name, const_bytes value);
    attribute_list& set(std::string_view name, std::string_view text);
    /// Sets all of these attributes; every one must have a value.
    attribute_list& set_all(const attribute_view& these);
    /// Adds an open attribute: the answer to a query fills in its value, if the resource has one.
    /// Reserves `room_bytes` for the value, so that fill() moves nothing.
    attribute_list& ask(std::string_view name, std::size_t room_bytes = 64);

    /// Fills in an open attribute. False if there is no open attribute of that name.
    bool fill(std::string_view name, const_bytes value);
    /// Fills in all open attributes that have a value in `from`.
    void fill_from(const attribute_view& from);

    /// The value of an attribute; empty if it is missing or open. Valid until the list changes.
    std::optional<const_bytes> find(std::string_view name) const noexcept;
    /// The same as text; "" if missing.
    std::string_view text(std::string_view name) const noexcept;
    /// The same as a number, see attribute::number(): number<int>("load").
    template <typename T>
    std::optional<T> number(std::string_view name) const noexcept {
        const auto one = view().find(name);
        return one && !one->is_open ? one->number<T>() : std::nullopt;
    }

    std::size_t size() const noexcept { return view().size(); }
    bool empty() const noexcept { return size() == 0; }
    attribute_view view() const noexcept;
    operator attribute_view() const noexcept { return view(); }
    /// The wire format. Valid until the list changes.
    const_bytes bytes() const noexcept { return view().bytes(); }

private:
    void append(std::string_view name, const_bytes value, std::size_t room, bool is_open);

    // uint64_t so that values are aligned to 8. Empty for an empty list.
    std::vector<std::uint64_t> words_;
};

/// Goes through the attributes in the order they were added.
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

/// For logs and people: {type: "server", rack: "7", load: ?}. Non-text bytes are shown in hex.
std::string to_string(const attribute_view& what);

}  // namespace amalgam
