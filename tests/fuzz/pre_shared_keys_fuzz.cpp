#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include <amalgam/core/detail/printable.hpp>

#include "fabric/trust/keys/pre_shared_keys.hpp"
#include "fuzz/fuzz.hpp"

// The text of a file of pre-shared keys, and what `amalgam key` makes of it.
namespace amalgam::fuzz {

namespace {

using namespace detail;

bool is_same(const pre_shared_keys::key& a, const pre_shared_keys::key& b) {
    return a.name == b.name && std::ranges::equal(a.secret, b.secret);
}

/// `changed` has the keys of `before` from its `from`-th on, without the one of that name.
void check_rest(const pre_shared_keys& before, std::size_t from, std::string_view without,
                const pre_shared_keys& changed) {
    std::size_t next = from;
    for (const pre_shared_keys::key& each : before.all().subspan(from)) {
        if (each.name == without) continue;
        require(next < changed.all().size() && is_same(changed.all()[next++], each),
                "a change leaves all other keys as they are");
    }
}

}  // namespace

void run_one(const_bytes input) {
    const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
    const auto keys = pre_shared_keys::in(text, "the text");
    if (!keys) {
        require(keys.code() == errc::invalid, "what is refused has a code that callers know");
        require(!keys.sentence().empty() && !has_controls(keys.sentence()),
                "what is refused is told in one line");
        return;
    }
    require(!keys->all().empty() && &keys->own() == &keys->all().front(), "there is an own key");
    for (const pre_shared_keys::key& each : keys->all()) {
        require(is_key_name(each.name), "who is let in has a name");
        require(each.secret.size() >= pre_shared_keys::least_bytes &&
                    each.secret.size() <= pre_shared_keys::most_bytes,
                "a key is neither short nor long");
        require(keys->find(each.name) == &each, "no two keys have one name");
    }
    const std::string last = keys->all().back().name;
    const auto less = pre_shared_keys::in(without_line(text, last).text(), "the text");
    require(less ? less->all().size() + 1 == keys->all().size() : keys->all().size() == 1,
            "one key is removed");
    if (less) check_rest(*keys, 0, last, *less);
    if (keys->find("fresh") != nullptr) return;
    const secret_text fresh = new_pre_shared_key("fresh");
    const auto own = pre_shared_keys::in(with_own(text, fresh.text()).text(), "the text");
    require(own && own->own().name == "fresh" && own->all().size() == keys->all().size(),
            "the own key is replaced");
    check_rest(*keys, 1, {}, *own);
    const auto more = pre_shared_keys::in(with_line(text, fresh.text()).text(), "the text");
    require(more ? more->all().back().name == "fresh"
                 : keys->all().size() == pre_shared_keys::most_keys,
            "a key is added");
    if (more) check_rest(*keys, 0, {}, *more);
}

std::span<const std::string_view> seeds() {
    static constexpr std::array<std::string_view, 3> all{
        "node7:000102030405060708090A0b0c0d0e0f\r\nother.lab:"
        "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff\n",
        "a:00000000000000000000000000000000\nb:11111111111111111111111111111111\n"
        "fresh:22222222222222222222222222222222\n",
        "x@y-z:"
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n"};
    return all;
}

}  // namespace amalgam::fuzz
