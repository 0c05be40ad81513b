#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <amalgam/core/detail/text.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/directory/attributes.hpp>

namespace amalgam {

// Wire format: number of attributes (u32), bytes of the list (u32); then per attribute: bytes of
// its name (u16), state (u16), bytes of its value (u32), bytes reserved for its value (u32), 0
// (u32), then the value's room and the name, each zero-padded to a multiple of 8. Little-endian.

namespace {

constexpr std::size_t list_head = 8;
constexpr std::size_t entry_head = 16;
constexpr std::uint16_t is_given = 0;
constexpr std::uint16_t is_asked = 1;

alignas(8) constexpr std::byte empty_list[list_head] = {{}, {}, {}, {}, std::byte{list_head}};

constexpr std::size_t padded(std::size_t bytes) noexcept {
    return (bytes + 7) / 8 * 8;
}

struct entry {
    std::uint16_t name_bytes;
    std::uint16_t state;
    std::uint32_t value_bytes;
    std::uint32_t room_bytes;  // A multiple of 8.

    static entry at(const std::byte* from) noexcept {
        return {load_le<std::uint16_t>(from), load_le<std::uint16_t>(from + 2),
                load_le<std::uint32_t>(from + 4), load_le<std::uint32_t>(from + 8)};
    }
    void put(std::byte* to) const noexcept {
        store_le(to, name_bytes);
        store_le(to + 2, state);
        store_le(to + 4, value_bytes);
        store_le(to + 8, room_bytes);
        store_le(to + 12, std::uint32_t{0});
    }
    std::size_t bytes() const noexcept { return entry_head + room_bytes + padded(name_bytes); }
};

attribute attribute_at(const std::byte* from) noexcept {
    const entry head = entry::at(from);
    const std::byte* const value = from + entry_head;
    return {{reinterpret_cast<const char*>(value + head.room_bytes), head.name_bytes},
            {value, head.value_bytes},
            head.state == is_asked};
}

failure malformed(std::string_view what) {
    return {{errc::invalid}, fmt::format("malformed list of attributes: {}", what)};
}

const_bytes bytes_of(std::string_view text) noexcept {
    return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

bool is_text(std::string_view what) noexcept {
    return std::all_of(what.begin(), what.end(),
                       [](char c) { return static_cast<unsigned char>(c) >= ' ' && c != 127; });
}

}  // namespace

attribute attribute_view::iterator::operator*() const noexcept {
    return attribute_at(at_);
}

attribute_view::iterator& attribute_view::iterator::operator++() noexcept {
    at_ += entry::at(at_).bytes();
    return *this;
}

attribute_view::iterator attribute_view::begin() const noexcept {
    return iterator(bytes_.data() + (bytes_.empty() ? 0 : list_head));
}

attribute_view::iterator attribute_view::end() const noexcept {
    return iterator(bytes_.data() + bytes_.size());
}

std::optional<attribute> attribute_view::find(std::string_view name) const noexcept {
    for (const attribute& each : *this)
        if (each.name == name) return each;
    return std::nullopt;
}

result<attribute_view> attribute_view::parse(const_bytes bytes) {
    if (reinterpret_cast<std::uintptr_t>(bytes.data()) % 8 != 0)
        return malformed("its memory is not aligned to 8 bytes");
    if (bytes.size() < list_head || bytes.size() > attribute_list::max_bytes ||
        load_le<std::uint32_t>(bytes.data() + 4) != bytes.size())
        return malformed("its length is wrong");
    const attribute_view all(bytes, load_le<std::uint32_t>(bytes.data()));
    if (all.count_ > attribute_list::max_attributes) return malformed("it has too many attributes");
    std::size_t at = list_head;
    for (std::uint32_t i = 0; i < all.count_; ++i) {
        if (bytes.size() - at < entry_head) return malformed("it ends within an attribute");
        const entry head = entry::at(bytes.data() + at);
        const bool fits = head.room_bytes % 8 == 0 && head.value_bytes <= head.room_bytes &&
                          head.room_bytes <= bytes.size() && head.bytes() <= bytes.size() - at;
        if (!fits) return malformed("an attribute is longer than the list");
        const bool known =
            head.state == is_given || (head.state == is_asked && head.value_bytes == 0);
        if (!known || head.name_bytes == 0 || head.name_bytes > attribute_list::max_name_bytes)
            return malformed("an attribute has a malformed header");
        const std::string_view name = attribute_at(bytes.data() + at).name;
        std::size_t before = list_head;
        for (; before != at; before += entry::at(bytes.data() + before).bytes())
            if (attribute_at(bytes.data() + before).name == name)
                return malformed("two attributes have the same name");
        at += head.bytes();
    }
    if (at != bytes.size()) return malformed("it has trailing bytes after its last attribute");
    return all;
}

attribute_list::attribute_list(
    std::initializer_list<std::pair<std::string_view, std::string_view>> all) {
    for (const auto& [name, text] : all)
        add(name, text);
}

attribute_list::attribute_list(attribute_view from) {
    if (from.empty()) return;
    words_.resize(from.bytes().size() / 8);
    std::memcpy(words_.data(), from.bytes().data(), from.bytes().size());
}

attribute_view attribute_list::view() const noexcept {
    if (words_.empty()) return {{empty_list, list_head}, 0};
    const auto* const bytes = reinterpret_cast<const std::byte*>(words_.data());
    return {{bytes, words_.size() * 8}, load_le<std::uint32_t>(bytes)};
}

attribute_list& attribute_list::add(std::string_view name, const_bytes value) {
    append(name, value, padded(value.size()), false);
    return *this;
}

attribute_list& attribute_list::add(std::string_view name, std::string_view text) {
    return add(name, bytes_of(text));
}

attribute_list& attribute_list::ask(std::string_view name, std::size_t room_bytes) {
    append(name, {}, padded(std::min(room_bytes, max_bytes)), true);
    return *this;
}

void attribute_list::append(std::string_view name, const_bytes value, std::size_t room,
                            bool is_open) {
    if (name.empty() || name.size() > max_name_bytes)
        throw error(errc::invalid, fmt::format("an attribute's name has {} bytes, expected 1 to {}",
                                               name.size(), max_name_bytes));
    if (view().find(name))
        throw error(
            errc::invalid,
            fmt::format("two attributes are named \"{}\", expected a unique name for each", name));
    if (size() == max_attributes)
        throw error(errc::too_large, fmt::format("there are more than {} attributes with \"{}\"",
                                                 max_attributes, name));
    const std::size_t before = bytes().size();
    const std::size_t more = entry_head + room + padded(name.size());
    if (room > max_bytes || before + more > max_bytes)
        throw error(
            errc::too_large,
            fmt::format("attributes take {} bytes with \"{}\", which has {}, expected at most {} "
                        "for all of a resource or query; send longer data as a message",
                        before + more, name, room, max_bytes));
    // Name and value may point into this list, so its old memory is freed last.
    std::vector<std::uint64_t> old;
    const std::size_t words = (before + more) / 8;
    if (words > words_.capacity()) {
        old.reserve(std::max(words, 2 * words_.capacity()));
        old.assign(words_.begin(), words_.end());
        old.swap(words_);
    }
    words_.resize(words);
    auto* const all = reinterpret_cast<std::byte*>(words_.data());
    std::byte* const to = all + before;
    entry{static_cast<std::uint16_t>(name.size()), is_open ? is_asked : is_given,
          static_cast<std::uint32_t>(value.size()), static_cast<std::uint32_t>(room)}
        .put(to);
    if (!value.empty()) std::memcpy(to + entry_head, value.data(), value.size());
    std::memcpy(to + entry_head + room, name.data(), name.size());
    store_le(all, load_le<std::uint32_t>(all) + 1);
    store_le(all + 4, static_cast<std::uint32_t>(before + more));
}

attribute_list& attribute_list::set(std::string_view name, const_bytes value) {
    if (!view().find(name)) return add(name, value);
    attribute_list changed;
    for (const attribute& each : view()) {
        const bool is_it = each.name == name;
        const std::size_t room = entry::at(each.value.data() - entry_head).room_bytes;
        changed.append(each.name, is_it ? value : each.value, is_it ? padded(value.size()) : room,
                       each.is_open && !is_it);
    }
    words_.swap(changed.words_);
    return *this;
}

attribute_list& attribute_list::set(std::string_view name, std::string_view text) {
    return set(name, bytes_of(text));
}

attribute_list& attribute_list::set_all(const attribute_view& these) {
    for (const attribute& each : these)
        set(each.name, each.value);
    return *this;
}

bool attribute_list::fill(std::string_view name, const_bytes value) {
    if (words_.empty()) return false;
    auto* at = reinterpret_cast<std::byte*>(words_.data()) + list_head;
    auto* const end = reinterpret_cast<std::byte*>(words_.data() + words_.size());
    for (; at != end; at += entry::at(at).bytes()) {
        entry head = entry::at(at);
        if (attribute_at(at).name != name) continue;
        if (head.state != is_asked) return false;
        if (value.size() > head.room_bytes) break;
        head.state = is_given;
        head.value_bytes = static_cast<std::uint32_t>(value.size());
        head.put(at);
        if (!value.empty()) std::memcpy(at + entry_head, value.data(), value.size());
        return true;
    }
    if (at == end) return false;
    // Not enough room: rebuild the list.
    attribute_list wider;
    for (const attribute& each : view()) {
        const bool is_it = each.name == name;
        const std::size_t room = entry::at(each.value.data() - entry_head).room_bytes;
        wider.append(each.name, is_it ? value : each.value, is_it ? padded(value.size()) : room,
                     each.is_open && !is_it);
    }
    words_ = std::move(wider.words_);
    return true;
}

void attribute_list::fill_from(const attribute_view& from) {
    for (const attribute& each : from)
        if (!each.is_open) fill(each.name, each.value);
}

std::optional<const_bytes> attribute_list::find(std::string_view name) const noexcept {
    const auto found = view().find(name);
    if (!found || found->is_open) return std::nullopt;
    return found->value;
}

std::string_view attribute_list::text(std::string_view name) const noexcept {
    const auto found = view().find(name);
    return found ? found->text() : std::string_view();
}

std::string to_string(const attribute_view& what) {
    std::string all = "{";
    for (const attribute& each : what) {
        if (all.size() > 1) all += ", ";
        all += each.name;
        if (each.is_open) {
            all += ": ?";
        } else if (is_text(each.text())) {
            all += fmt::format(": \"{}\"", each.text());
        } else {
            all += ": 0x" + detail::to_hex(each.value);
        }
    }
    return all + "}";
}

}  // namespace amalgam
