#pragma once

#include <algorithm>
#include <array>
#include <bitset>
#include <chrono>
#include <complex>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <forward_list>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <stack>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <valarray>
#include <variant>
#include <vector>

#include <amalgam/rpc/archive.hpp>

/// For tests: user types in every style, and values of every serializable type.
namespace amalgam::samples {

enum class colour : std::uint16_t { red = 1, blue = 500 };
enum class small_colour : std::int8_t { red = -1, blue = 5 };

struct member_style {
    int a = 0;
    std::string b;
    bool operator==(const member_style&) const = default;
    template <typename Archive>
    void serialize(Archive& archive) {
        archive(a, b);
    }
};

struct boost_style {
    int a = 0;
    std::vector<int> b;
    bool operator==(const boost_style&) const = default;
    template <typename Archive>
    void serialize(Archive& archive) {
        archive& a& b;
    }
};

struct split_style {
    double half = 0;
    bool operator==(const split_style&) const = default;
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
};

/// Encoded as one number.
struct minimal_style {
    int tens = 0;
    bool operator==(const minimal_style&) const = default;
    template <typename Archive>
    std::int16_t save_minimal(const Archive&) const {
        return static_cast<std::int16_t>(tens / 10);
    }
    template <typename Archive>
    void load_minimal(const Archive&, const std::int16_t& ones) {
        tens = ones * 10;
    }
};

class private_style {
public:
    private_style() = default;
    explicit private_style(int a) : a_(a) {}
    bool operator==(const private_style&) const = default;

private:
    friend class amalgam::serialization_access;
    template <typename Archive>
    void serialize(Archive& archive) {
        archive(a_);
    }
    int a_ = 0;
};

/// Has no default constructor.
class self_loading_style {
public:
    explicit self_loading_style(std::string text) : text_(std::move(text)) {}
    bool operator==(const self_loading_style&) const = default;
    template <typename Archive>
    void save(Archive& archive) const {
        archive(text_);
    }
    static self_loading_style amalgam_load(archive_reader& archive) {
        std::string text;
        archive(text);
        return self_loading_style(std::move(text));
    }

private:
    std::string text_;
};

struct raw_style {
    using amalgam_trivially_serializable = void;
    std::int32_t x = 0, y = 0;
    bool operator==(const raw_style&) const = default;
};

/// Of a size that XDR pads.
struct raw_pixel {
    using amalgam_trivially_serializable = void;
    std::uint8_t red = 0, green = 0, blue = 0;
    bool operator==(const raw_pixel&) const = default;
};

struct free_style {
    int a = 0;
    bool operator==(const free_style&) const = default;
};
template <typename Archive>
void serialize(Archive& archive, free_style& x) {
    archive(x.a);
}

struct free_split_style {
    unsigned a = 0;
    bool operator==(const free_split_style&) const = default;
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

struct free_minimal_style {
    std::string text;
    bool operator==(const free_minimal_style&) const = default;
};
template <typename Archive>
std::string save_minimal(const Archive&, const free_minimal_style& x) {
    return "<" + x.text;
}
template <typename Archive>
void load_minimal(const Archive&, free_minimal_style& x, const std::string& text) {
    x.text = text.substr(std::min<std::size_t>(text.size(), 1));
}

struct tree {
    std::uint16_t value = 0;
    std::string name;
    std::vector<tree> children;
    std::unique_ptr<tree> next;
    std::shared_ptr<tree> shared;
    template <typename Archive>
    void serialize(Archive& archive) {
        archive(value, name, children, next, shared);
    }
    bool operator==(const tree& other) const {
        const auto same = [](const auto& a, const auto& b) { return a && b ? *a == *b : !a && !b; };
        return value == other.value && name == other.name && children == other.children &&
               same(next, other.next) && same(shared, other.shared);
    }
};

struct arrays {
    int numbers[3] = {};
    char text[5] = {};
    bool flags[2] = {};
    std::string words[2];
    bool operator==(const arrays&) const = default;
    template <typename Archive>
    void serialize(Archive& archive) {
        archive(numbers, text, flags, words);
    }
};

/// A user's container with its own serialization.
struct own_container : std::vector<int> {
    template <typename Archive>
    void serialize(Archive& archive) {
        int last = empty() ? 0 : back();
        archive(last);
        assign(1, last);
    }
};

inline tree small_tree() {
    tree root;
    root.value = 1;
    root.name = "root";
    root.children.resize(3);
    root.children[1].value = 7;
    root.next = std::make_unique<tree>();
    root.next->value = 9;
    root.shared = std::make_shared<tree>();
    root.shared->name = "shared";
    return root;
}

template <typename Adaptor>
Adaptor filled(std::initializer_list<typename Adaptor::value_type> values) {
    Adaptor made;
    for (const auto& each : values)
        made.push(each);
    return made;
}

/// Calls `visit(value)` for at least one value of every serializable type, in the same order each
/// time.
template <typename Visit>
void for_each(Visit visit) {
    using namespace std::chrono_literals;
    visit(true);
    visit(false);
    visit('x');
    visit(static_cast<char>(-3));
    visit(std::int8_t{-7});
    visit(std::uint8_t{250});
    visit(std::int16_t{-300});
    visit(std::uint16_t{65535});
    visit(-2'000'000'000);
    visit(4'000'000'000u);
    visit(std::numeric_limits<std::int64_t>::min());
    visit(std::numeric_limits<std::uint64_t>::max());
    visit(3.25f);
    visit(-1e300);
    visit(std::numeric_limits<double>::infinity());
    visit(U'\u20ac');
    visit(L'w');
    visit(std::byte{200});
    visit(colour::blue);
    visit(small_colour::red);
    visit(std::complex<float>(1, -2));
    visit(std::bitset<11>(0b101'0000'0001));
    visit(std::bitset<64>(~0ull));
    visit(-5ms);
    visit(std::chrono::duration<double>(2.5));
    visit(std::chrono::system_clock::time_point(123456789us));

    visit(std::string());
    visit(std::string("abcde"));
    visit(std::string(1000, 's'));
    visit(std::u8string(u8"\u20ac"));
    visit(std::u16string(u"\u20acx"));
    visit(std::u32string(U"\u20ac"));
    visit(std::wstring(L"wide"));
    visit(std::filesystem::path("/a/b.txt"));
    visit(std::vector<int>{1, -2, 3});
    visit(std::vector<std::byte>(7, std::byte{3}));
    visit(std::vector<std::int8_t>{-1, 2, -3});
    visit(std::vector<std::uint16_t>{1, 2, 65535});
    visit(std::vector<float>{1.5f, -2.5f});
    visit(std::vector<double>{1.5, -2.5, 1e-300});
    visit(std::vector<std::complex<double>>{{1, 2}, {3, 4}});
    visit(std::vector<bool>{true, false, true});
    visit(std::vector<colour>{colour::red, colour::blue});
    visit(std::vector<small_colour>{small_colour::red});
    visit(std::vector<std::string>{"", "a", std::string(300, 'b')});
    visit(std::vector<std::vector<double>>{{}, {1}, {2, 3}});
    visit(std::vector<std::array<std::uint8_t, 3>>{{1, 2, 3}, {4, 5, 6}});
    visit(std::vector<std::array<std::int16_t, 3>>{{1, -2, 3}, {4, 5, 6}});
    visit(std::array<int, 3>{1, 2, 3});
    visit(std::array<char, 6>{'a', 'b', 'c', 'd', 'e', 'f'});
    visit(std::array<bool, 3>{true, false, true});
    visit(std::array<std::string, 2>{"x", "y"});
    visit(std::array<std::array<double, 2>, 2>{{{1, 2}, {3, 4}}});
    visit(std::array<int, 0>{});
    visit(std::list<int>{4, 5});
    visit(std::deque<std::string>{"d", ""});
    visit(std::forward_list<std::string>{"f", "g", "h"});
    visit(std::valarray<double>{1, 2, 3});
    visit(filled<std::queue<std::string>>({"1", "2"}));
    visit(filled<std::stack<int>>({1, 2}));
    visit(filled<std::priority_queue<int, std::vector<int>, std::greater<>>>({3, 1, 2}));
    visit(std::map<std::string, std::vector<int>>{{"a", {1}}, {"b", {}}});
    visit(std::multimap<int, int>{{1, 2}, {1, 3}});
    visit(std::unordered_map<int, std::string>{{1, "one"}, {2, "two"}});
    visit(std::unordered_multimap<int, std::string>{{1, "one"}, {1, "two"}});
    visit(std::set<std::string>{"p", "q"});
    visit(std::multiset<std::int8_t>{1, 1, 2});
    visit(std::unordered_set<int>{1, 2, 3});
    visit(std::unordered_multiset<int>{1, 1});
    visit(std::pair<std::int8_t, std::string>{1, "p"});
    visit(std::tuple<int, std::string, double>{1, "t", 2.5});
    visit(std::tuple<>{});
    visit(std::optional<std::string>{});
    visit(std::optional<std::string>{"there"});
    visit(std::variant<int, std::string, std::monostate>{"v"});
    visit(std::variant<int, std::string, std::monostate>{std::monostate{}});
    visit(std::make_unique<int>(3));
    visit(std::unique_ptr<std::string>());
    visit(std::shared_ptr<const std::string>(std::make_shared<std::string>("s")));
    visit(std::vector<std::unique_ptr<std::string>>(2));

    visit(member_style{1, "m"});
    visit(boost_style{2, {3, 4}});
    visit(split_style{1.5});
    visit(minimal_style{70});
    visit(private_style(5));
    visit(raw_style{5, 6});
    visit(raw_pixel{1, 2, 3});
    visit(free_style{7});
    visit(free_split_style{8});
    visit(free_minimal_style{"free"});
    visit(small_tree());
    visit(arrays{{1, 2, 3}, {'a', 'b'}, {true, false}, {"v", "w"}});
    visit(own_container{});
    visit(std::vector<member_style>{{1, "a"}, {2, "b"}});
    visit(std::vector<raw_style>{{1, 2}, {3, 4}});
    visit(std::vector<raw_pixel>{{1, 2, 3}, {4, 5, 6}});
    visit(std::map<int, boost_style>{{1, {1, {1}}}});
    visit(std::vector<self_loading_style>{self_loading_style("a"), self_loading_style("b")});
    visit(std::optional<self_loading_style>(self_loading_style("there")));
    visit(std::variant<int, self_loading_style>(self_loading_style("v")));
    visit(std::unique_ptr<self_loading_style>(new self_loading_style("p")));
}

}  // namespace amalgam::samples
