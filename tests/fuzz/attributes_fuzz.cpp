#include <cstring>
#include <string>
#include <vector>

#include <amalgam/directory/attributes.hpp>

#include "directory/resources/store.hpp"
#include "fuzz/fuzz.hpp"

// Attribute lists from strangers: refused, or as good as those made here.
namespace amalgam::fuzz {

void run_one(const_bytes input) {
    std::vector<std::uint64_t> aligned(input.size() / 8 + 1);
    if (!input.empty()) std::memcpy(aligned.data(), input.data(), input.size());
    const const_bytes bytes(reinterpret_cast<const std::byte*>(aligned.data()), input.size());
    const auto parsed = attribute_view::parse(bytes);
    if (!parsed) return require(parsed.code() == errc::invalid, "a refused list is invalid");

    attribute_list same(*parsed), given, rebuilt;
    for (const attribute& each : *parsed) {
        require(parsed->find(each.name)->value.data() == each.value.data(), "names differ");
        each.is_open ? rebuilt.ask(each.name) : rebuilt.add(each.name, each.value);
        if (!each.is_open) given.add(each.name, each.value);
        same.fill(each.name, as_bytes_of(std::string("a value")));
    }
    require(to_string(rebuilt) == to_string(*parsed), "it can be made anew");
    for (const attribute& each : same.view())
        require(!each.is_open, "each open one was filled");

    detail::resource_store store;
    store.own_range(1);
    const resource_id id = store.add(resource_id::none, given);
    require(store.find_first(*parsed).id == id, "what it asks for is found");
    require(store.remove(id) && store.size() == 0, "and can go");
}

std::span<const std::string_view> seeds() {
    static const std::vector<std::string> texts = [] {
        std::vector<std::string> made;
        attribute_list some{{"type", "server"}, {"rack", "7"}};
        some.ask("load").ask("a name that is longer than eight bytes", 100);
        for (const attribute_list& each : {attribute_list(), attribute_list{{"a", ""}}, some}) {
            const const_bytes bytes = each.bytes();
            made.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        }
        return made;
    }();
    static const std::vector<std::string_view> views(texts.begin(), texts.end());
    return views;
}

}  // namespace amalgam::fuzz
