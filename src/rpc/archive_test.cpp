#include <array>
#include <chrono>
#include <cmath>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>
#include <amalgam/rpc/archive.hpp>

namespace amalgam {
namespace {

/// The bytes of `values`, somewhere aligned as a message's body is.
template <typename... T>
buffer encoded(const T&... values) {
    body into;
    archive_writer writer(into);
    writer(values...);
    buffer copy = buffer::of(into.size());
    if (into.size() != 0) std::memcpy(copy.data(), into.bytes().data(), into.size());
    return copy;
}

template <typename T>
T round_trip(const T& value) {
    const buffer bytes = encoded(value);
    archive_reader reader(bytes.bytes());
    T back{};
    reader(back);
    EXPECT_TRUE(reader.ok()) << reader.why();
    EXPECT_EQ(reader.remaining(), 0u);
    return back;
}

template <typename T>
void expect_same(const T& value) {
    EXPECT_EQ(round_trip(value), value);
}

enum class colour : std::uint16_t { red = 1, blue = 500 };

struct member_style {
    int a = 0;
    std::string b;
    template <typename Archive>
    void serialize(Archive& archive) {
        archive(a, b);
    }
    friend bool operator==(const member_style&, const member_style&) = default;
};

struct boost_style {
    int a = 0;
    std::vector<int> b;
    template <typename Archive>
    void serialize(Archive& archive) {
        archive& a& b;
    }
    friend bool operator==(const boost_style&, const boost_style&) = default;
};

struct split_style {
    double half = 0;
    template <typename Archive>
    void save(Archive& archive) const {
        archive(half * 2);
    }
    template <typename Archive>
    void load(Archive& archive) {
        double whole = 0;
        archive(whole);
        half = whole / 2;
    }
    friend bool operator==(const split_style&, const split_style&) = default;
};

struct raw_style {
    using amalgam_trivially_serializable = void;
    std::int32_t x = 0, y = 0;
    friend bool operator==(const raw_style&, const raw_style&) = default;
};

struct tree {
    int value = 0;
    std::vector<tree> children;
    std::unique_ptr<tree> next;
    template <typename Archive>
    void serialize(Archive& archive) {
        archive(value, children, next);
    }
};

}  // namespace

namespace elsewhere {
struct free_style {
    int a = 0;
    friend bool operator==(const free_style&, const free_style&) = default;
};
template <typename Archive>
void serialize(Archive& archive, free_style& x) {
    archive(x.a);
}
struct free_split_style {
    int a = 0;
    friend bool operator==(const free_split_style&, const free_split_style&) = default;
};
template <typename Archive>
void save(Archive& archive, const free_split_style& x) {
    archive(x.a + 1);
}
template <typename Archive>
void load(Archive& archive, free_split_style& x) {
    archive(x.a);
    --x.a;
}
}  // namespace elsewhere

namespace {

TEST(archive, numbers_enums_and_bool_come_back) {
    expect_same(true);
    expect_same(false);
    expect_same('x');
    expect_same<std::int8_t>(-7);
    expect_same<std::uint16_t>(65535);
    expect_same(-2'000'000'000);
    expect_same(std::numeric_limits<std::uint64_t>::max());
    expect_same(3.25f);
    expect_same(-1e300);
    expect_same(colour::blue);
    expect_same(std::byte{200});
    EXPECT_TRUE(std::isnan(round_trip(std::nan(""))));
}

TEST(archive, the_librarys_containers_come_back) {
    expect_same(std::string());
    expect_same(std::string(1000, 's'));
    expect_same(std::vector<int>{1, 2, 3});
    expect_same(std::vector<bool>{true, false, true});
    expect_same(std::vector<std::string>{"", "a", std::string(300, 'b')});
    expect_same(std::vector<std::vector<double>>{{}, {1}, {2, 3}});
    expect_same(std::array<int, 3>{1, 2, 3});
    expect_same(std::array<std::string, 2>{"x", "y"});
    expect_same(std::list<int>{4, 5});
    expect_same(std::deque<std::string>{"d"});
    expect_same(std::map<std::string, std::vector<int>>{{"a", {1}}, {"b", {}}});
    expect_same(std::multimap<int, int>{{1, 2}, {1, 3}});
    expect_same(std::unordered_map<int, std::string>{{1, "one"}, {2, "two"}});
    expect_same(std::set<std::string>{"p", "q"});
    expect_same(std::pair<int, std::string>{1, "p"});
    expect_same(std::tuple<int, std::string, double>{1, "t", 2.5});
    expect_same(std::tuple<>{});
    expect_same(std::optional<std::string>{});
    expect_same(std::optional<std::string>{"there"});
    expect_same(std::variant<int, std::string, std::monostate>{"v"});
    expect_same(std::variant<int, std::string, std::monostate>{std::monostate{}});
    expect_same(std::chrono::milliseconds(-5));
    expect_same(std::chrono::system_clock::now());
}

TEST(archive, users_types_come_back_in_every_style) {
    expect_same(member_style{1, "m"});
    expect_same(boost_style{2, {3, 4}});
    expect_same(split_style{1.5});
    expect_same(raw_style{5, 6});
    expect_same(elsewhere::free_style{7});
    expect_same(elsewhere::free_split_style{8});
    expect_same(std::vector<member_style>{{1, "a"}, {2, "b"}});
    expect_same(std::vector<raw_style>{{1, 2}, {3, 4}});
    expect_same(std::map<int, boost_style>{{1, {1, {1}}}});
}

TEST(archive, a_tree_comes_back) {
    tree root;
    root.value = 1;
    root.children.resize(3);
    root.children[1].value = 7;
    root.next = std::make_unique<tree>();
    root.next->value = 9;
    const tree back = round_trip(root);
    EXPECT_EQ(back.children[1].value, 7);
    ASSERT_TRUE(back.next);
    EXPECT_EQ(back.next->value, 9);
    EXPECT_FALSE(back.next->next);
}

TEST(archive, an_array_member_comes_back) {
    int sent[4] = {1, 2, 3, 4}, got[4] = {};
    const buffer bytes = encoded(sent);
    archive_reader reader(bytes.bytes());
    reader(got);
    EXPECT_TRUE(std::equal(sent, sent + 4, got));
}

TEST(archive, trivially_serializable_types_and_numbers_take_their_own_size) {
    EXPECT_EQ(encoded(1, 2).size(), 8u);
    EXPECT_EQ(encoded(raw_style{}).size(), sizeof(raw_style));
    EXPECT_EQ(encoded(std::vector<raw_style>(10)).size(), 4 + 10 * sizeof(raw_style));
    EXPECT_EQ(encoded(std::vector<double>(3)).size(), 8 + 3 * sizeof(double));
}

TEST(archive, numbers_are_little_endian_and_blocks_aligned) {
    const buffer bytes =
        encoded(std::uint8_t{1}, std::uint32_t{0x04030201}, std::vector<std::uint16_t>{0x0605});
    const std::array<unsigned char, 12> expected{1, 1, 2, 3, 4, 1, 0, 0, 0, 0, 5, 6};
    ASSERT_EQ(bytes.size(), expected.size());
    EXPECT_EQ(std::memcmp(bytes.data(), expected.data(), expected.size()), 0);
}

TEST(archive, views_are_read_in_place_and_aligned) {
    const buffer bytes = encoded(std::string("abc"), std::vector<double>{1, 2});
    archive_reader reader(bytes.bytes());
    std::string_view text;
    std::span<const double> numbers;
    reader(text, numbers);
    EXPECT_EQ(text, "abc");
    ASSERT_EQ(numbers.size(), 2u);
    EXPECT_EQ(numbers[1], 2);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(numbers.data()) % alignof(double), 0u);
    EXPECT_GE(reinterpret_cast<const std::byte*>(numbers.data()), bytes.data());
    EXPECT_TRUE(reader.ok());
}

TEST(archive, a_body_grows_past_its_inline_room_and_keeps_what_it_has) {
    buffer_pool pool;
    body into(&pool);
    archive_writer writer(into);
    for (std::uint32_t i = 0; i < 100'000; ++i)
        writer(i);
    archive_reader reader(into.bytes());
    for (std::uint32_t i = 0; i < 100'000; ++i) {
        std::uint32_t value = 0;
        reader(value);
        ASSERT_EQ(value, i);
    }
    const std::array<std::byte, 16> header{std::byte{9}};
    const const_bytes whole = into.with_header(header);
    EXPECT_EQ(whole.size(), 400'016u);
    EXPECT_EQ(whole[0], std::byte{9});
    EXPECT_EQ(whole.data() + 16, into.bytes().data());
}

// ---- bytes nobody vouches for

template <typename T>
std::string_view refusal(const buffer& bytes, std::size_t length) {
    archive_reader reader(bytes.bytes().subspan(0, length));
    T value{};
    reader(value);
    return reader.ok() ? "" : reader.why();
}

TEST(archive, every_shorter_message_is_refused_without_a_read_past_its_end) {
    using all = std::tuple<int, std::string, std::vector<std::string>, std::map<int, double>,
                           std::optional<member_style>, std::variant<int, boost_style>,
                           std::vector<raw_style>, std::unique_ptr<tree>>;
    all value;
    std::get<1>(value) = "two";
    std::get<2>(value) = {"3", "four"};
    std::get<3>(value) = {{5, 6.0}};
    std::get<4>(value) = member_style{7, "8"};
    std::get<5>(value) = boost_style{9, {10}};
    std::get<6>(value) = {{11, 12}};
    std::get<7>(value) = std::make_unique<tree>();
    const buffer bytes = encoded(value);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
        // On the heap in its exact length, so that AddressSanitizer sees the end.
        buffer exact = buffer::of(length);
        if (length != 0) std::memcpy(exact.data(), bytes.data(), length);
        EXPECT_NE(refusal<all>(exact, length), "") << length;
    }
    EXPECT_EQ(refusal<all>(bytes, bytes.size()), "");
}

TEST(archive, a_length_beyond_the_message_is_refused_before_anything_is_allocated) {
    const buffer huge = encoded(std::uint32_t{0xffffffff}, std::uint64_t{0});
    EXPECT_EQ(refusal<std::string>(huge, huge.size()), "a length is larger than the message");
    EXPECT_EQ(refusal<std::vector<double>>(huge, huge.size()),
              "a length is larger than the message");
    EXPECT_EQ((refusal<std::vector<std::string>>(huge, huge.size())),
              "a length is larger than the message");
    EXPECT_EQ((refusal<std::map<int, int>>(huge, huge.size())),
              "a length is larger than the message");
    EXPECT_EQ((refusal<std::list<tree>>(huge, huge.size())), "a length is larger than the message");
}

TEST(archive, an_index_past_the_last_alternative_is_refused) {
    const buffer bytes = encoded(std::uint8_t{3}, 0);
    EXPECT_EQ((refusal<std::variant<int, double>>(bytes, bytes.size())),
              "an index is past a variant's last alternative");
}

TEST(archive, endless_nesting_is_refused) {
    // Each node: value 0, no children, a next one.
    body into;
    archive_writer writer(into);
    for (int i = 0; i < 100'000; ++i)
        writer(0, std::uint32_t{0}, true);
    archive_reader reader(into.bytes());
    tree root;
    reader(root);
    EXPECT_EQ(reader.why(), "its values nest too deep");
}

TEST(archive, reading_past_a_fault_gives_zeros_and_ends_loops) {
    const buffer bytes = encoded(std::uint8_t{1});
    archive_reader reader(bytes.bytes());
    std::uint64_t number = 5;
    std::string text = "old";
    reader(number, text);
    EXPECT_FALSE(reader.ok());
    EXPECT_EQ(number, 0u);
    EXPECT_EQ(text, "");
    EXPECT_EQ(reader.remaining(), 0u);
}

}  // namespace
}  // namespace amalgam
