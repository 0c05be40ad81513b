#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/directory/attributes.hpp>

#include "thrown.hpp"

namespace amalgam {
namespace {

const_bytes bytes_of(std::string_view text) {
    return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

TEST(attribute_list, gives_back_what_was_added_in_order) {
    attribute_list all{{"type", "server"}, {"rack", ""}};
    all.add("pid", bytes_of(std::string_view("\0\1\2", 3))).ask("load");
    EXPECT_EQ(all.size(), 4u);
    EXPECT_EQ(all.text("type"), "server");
    EXPECT_EQ(all.find("rack")->size(), 0u);
    EXPECT_FALSE(all.find("load"));
    EXPECT_FALSE(all.find("none"));
    EXPECT_EQ(to_string(all), R"({type: "server", rack: "", pid: 0x000102, load: ?})");
    for (const attribute& each : all.view())
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(each.value.data()) % 8, 0u);
    EXPECT_TRUE(attribute_list().empty());
    EXPECT_EQ(to_string(attribute_view()), "{}");
}

TEST(attribute_list, open_attributes_are_filled_in_place_or_not) {
    attribute_list query{{"type", "server"}};
    query.ask("load", 8).ask("rack", 0).add("zone", "x");
    const attribute_list resource{
        {"type", "server"}, {"load", "0.5"}, {"rack", std::string(1000, 'r')}, {"zone", "y"}};
    const std::byte* const before = query.bytes().data();
    EXPECT_TRUE(query.fill("load", bytes_of("0.25")));
    EXPECT_EQ(query.bytes().data(), before);
    EXPECT_FALSE(query.fill("load", bytes_of("1"))) << "it is not open any more";
    EXPECT_FALSE(query.fill("none", bytes_of("1")));
    query.fill_from(resource);
    EXPECT_EQ(query.text("load"), "0.25");
    EXPECT_EQ(query.text("rack"), std::string(1000, 'r'));
    EXPECT_EQ(query.text("zone"), "x");
    EXPECT_EQ(query.size(), 4u);
}

TEST(attribute_list, set_gives_a_value_in_its_place_and_leaves_all_else_as_it_was) {
    attribute_list all{{"type", "server"}, {"load", "1"}};
    all.ask("rack", 500).ask("zone");
    all.set("load", "a longer value than before").set("zone", "x").set("new", "y");
    EXPECT_EQ(to_string(all), R"({type: "server", load: "a longer value than before", rack: ?, )"
                              R"(zone: "x", new: "y"})");
    all.set_all(attribute_list{{"type", "client"}, {"newer", "z"}});
    EXPECT_EQ(to_string(all), R"({type: "client", load: "a longer value than before", rack: ?, )"
                              R"(zone: "x", new: "y", newer: "z"})");
    const std::byte* const before = all.bytes().data();
    EXPECT_TRUE(all.fill("rack", bytes_of(std::string(500, 'r'))));
    EXPECT_EQ(all.bytes().data(), before) << "the room that was asked for is there still";
    const std::string as_it_was = to_string(all);
    EXPECT_EQ(code_of([&] { all.set("", "x"); }), errc::invalid);
    EXPECT_EQ(code_of([&] { all.set("type", std::string(attribute_list::max_bytes, 'b')); }),
              errc::too_large);
    EXPECT_EQ(to_string(all), as_it_was);
}

TEST(attribute_list, takes_values_and_names_of_its_own) {
    attribute_list all{{"first", "some text of a length"}};
    for (int i = 0; i < 100; ++i)
        all.add(std::to_string(i), all.text("first"));
    all.set("last", *all.find("first"));
    all.set("first", *all.find("99"));
    for (const attribute& each : all.view())
        EXPECT_EQ(each.text(), "some text of a length") << each.name;
    attribute_list named{{"name", "of another"}};
    named.add(named.text("name"), "x");
    EXPECT_EQ(named.text("of another"), "x");
}

TEST(attribute, is_a_number_as_a_whole_or_not_at_all) {
    const attribute_list all{{"n", "-12"}, {"half", "0.5"}, {"big", "300"},
                             {"none", ""}, {"more", "1x"},  {"space", " 1"}};
    EXPECT_EQ(all.number<int>("n"), -12);
    EXPECT_EQ(all.number<double>("half"), 0.5);
    EXPECT_EQ(all.number<std::uint8_t>("big"), std::nullopt) << "it does not fit";
    EXPECT_EQ(all.number<unsigned>("n"), std::nullopt);
    for (const char* name : {"none", "more", "space", "half", "there is none"})
        EXPECT_EQ(all.number<int>(name), std::nullopt) << name;
    attribute_list open;
    open.ask("n");
    EXPECT_EQ(open.number<int>("n"), std::nullopt);
    EXPECT_EQ(all.view().find("big")->number<std::uint16_t>(), 300);
}

TEST(attribute_list, refuses_what_it_cannot_hold) {
    attribute_list all{{"type", "server"}};
    EXPECT_EQ(code_of([&] { all.add("type", "client"); }), errc::invalid);
    EXPECT_EQ(code_of([&] { all.ask("type"); }), errc::invalid);
    EXPECT_EQ(code_of([&] { all.add("", "nothing"); }), errc::invalid);
    EXPECT_EQ(code_of([&] { all.add(std::string(256, 'n'), ""); }), errc::invalid);
    EXPECT_EQ(code_of([&] { all.add("big", std::string(attribute_list::max_bytes, 'b')); }),
              errc::too_large);
    EXPECT_EQ(code_of([&] { all.ask("big", attribute_list::max_bytes); }), errc::too_large);
    for (std::size_t i = 1; i < attribute_list::max_attributes; ++i)
        all.add(std::to_string(i), "");
    EXPECT_EQ(code_of([&] { all.add("one more", ""); }), errc::too_large);
    EXPECT_EQ(all.size(), attribute_list::max_attributes);
    EXPECT_TRUE(attribute_view::parse(all.bytes()));
}

TEST(attribute_view, of_bytes_from_elsewhere_is_the_same_or_refused) {
    attribute_list all{{"type", "server"}, {"name", "a longer value than others"}};
    all.ask("load");
    const auto parsed = attribute_view::parse(all.bytes());
    ASSERT_TRUE(parsed);
    EXPECT_EQ(to_string(*parsed), to_string(all));
    EXPECT_EQ(attribute_list(*parsed).text("name"), "a longer value than others");
    EXPECT_FALSE(attribute_view::parse({}));

    // Damaged lists are either refused or readable to the end.
    seeded_random random(1);
    for (int i = 0; i < 100'000; ++i) {
        std::vector<std::uint64_t> words(all.bytes().size() / 8);
        std::memcpy(words.data(), all.bytes().data(), all.bytes().size());
        auto* const bytes = reinterpret_cast<std::byte*>(words.data());
        for (std::uint64_t n = 1 + random.below(3); n > 0; --n)
            bytes[random.below(all.bytes().size())] = static_cast<std::byte>(random.below(256));
        const std::size_t length =
            random.chance(0.9) ? all.bytes().size() : random.below(words.size()) * 8;
        const auto damaged = attribute_view::parse({bytes, length});
        if (!damaged) continue;
        std::size_t count = 0;
        for (const attribute& each : *damaged) {
            ++count;
            ASSERT_LE(each.value.data() + each.value.size(), bytes + length);
            ASSERT_LE(each.name.size(), attribute_list::max_name_bytes);
        }
        ASSERT_EQ(count, damaged->size());
    }
}

}  // namespace
}  // namespace amalgam
