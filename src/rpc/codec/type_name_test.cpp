#include <array>
#include <bitset>
#include <complex>
#include <deque>
#include <filesystem>
#include <forward_list>
#include <map>
#include <queue>
#include <set>
#include <string>
#include <unordered_map>
#include <valarray>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/type_name.hpp>

namespace app {
struct point {
    template <typename Archive>
    void serialize(Archive&) {}
};
template <typename T, typename U>
struct both {
    template <typename Archive>
    void serialize(Archive&) {}
};
template <int N>
struct fixed {
    static constexpr std::string_view amalgam_type_name = "app.fixed";
    template <typename Archive>
    void serialize(Archive&) {}
};
enum class colour : std::uint8_t { red };
}  // namespace app

namespace amalgam {
namespace {

struct hidden {
    template <typename Archive>
    void serialize(Archive&) {}
};

TEST(type_name, numbers_are_called_by_kind_and_width) {
    EXPECT_EQ(type_name<int>(), "i32");
    EXPECT_EQ(type_name<long>(), sizeof(long) == 8 ? "i64" : "i32");
    EXPECT_EQ(type_name<long long>(), "i64");
    EXPECT_EQ(type_name<std::size_t>(), "u64");
    EXPECT_EQ(type_name<unsigned char>(), "u8");
    EXPECT_EQ(type_name<float>(), "f32");
    EXPECT_EQ(type_name<double>(), "f64");
    EXPECT_EQ(type_name<bool>(), "bool");
    EXPECT_EQ(type_name<char>(), "char");
    EXPECT_EQ(type_name<std::byte>(), "byte");
}

TEST(type_name, types_that_travel_alike_are_called_alike) {
    EXPECT_EQ(type_name<std::string>(), "string");
    EXPECT_EQ(type_name<std::string_view>(), "string");
    EXPECT_EQ(type_name<std::vector<double>>(), "vector<f64>");
    EXPECT_EQ(type_name<std::span<const double>>(), "vector<f64>");
    EXPECT_EQ(type_name<std::deque<double>>(), "vector<f64>");
    EXPECT_EQ((type_name<std::map<int, std::string>>()), "map<i32,string>");
    EXPECT_EQ((type_name<std::unordered_map<int, std::string>>()), "map<i32,string>");
    EXPECT_EQ(type_name<std::set<int>>(), "set<i32>");
    EXPECT_EQ((type_name<std::pair<int, bool>>()), "tuple<i32,bool>");
    EXPECT_EQ((type_name<std::tuple<int, bool>>()), "tuple<i32,bool>");
    EXPECT_EQ(type_name<std::optional<int>>(), "optional<i32>");
    EXPECT_EQ(type_name<std::unique_ptr<int>>(), "optional<i32>");
    EXPECT_EQ((type_name<std::array<int, 3>>()), "array<i32,3>");
    EXPECT_EQ((type_name<std::variant<std::monostate, int>>()), "variant<none,i32>");
    EXPECT_EQ(type_name<std::shared_ptr<const int>>(), "optional<i32>");
    EXPECT_EQ(type_name<std::forward_list<int>>(), "vector<i32>");
    EXPECT_EQ(type_name<std::queue<int>>(), "vector<i32>");
    EXPECT_EQ(type_name<std::priority_queue<int>>(), "vector<i32>");
    EXPECT_EQ(type_name<std::valarray<int>>(), "vector<i32>");
    EXPECT_EQ((type_name<std::unordered_multimap<int, bool>>()), "map<i32,bool>");
    EXPECT_EQ(type_name<std::filesystem::path>(), "string");
    EXPECT_EQ(type_name<std::complex<float>>(), "complex<f32>");
    EXPECT_EQ(type_name<std::bitset<12>>(), "bitset<12>");
    EXPECT_EQ(type_name<std::chrono::milliseconds>(), "duration<i64,1/1000>");
    EXPECT_EQ(type_name<std::chrono::sys_seconds>(), "time<duration<i64,1/1>>");
}

// The same literals on every compiler.
TEST(type_name, users_types_have_one_name_whatever_the_compiler) {
    EXPECT_EQ(type_name<app::point>(), "app::point");
    EXPECT_EQ((type_name<app::both<int, std::vector<app::point>>>()),
              "app::both<i32,vector<app::point>>");
    EXPECT_EQ(type_name<app::fixed<3>>(), "app.fixed");
    EXPECT_EQ(type_name<app::colour>(), "app::colour:u8");
    EXPECT_EQ(type_name<hidden>(), "amalgam::{anonymous}::hidden");
}

TEST(type_name, a_signature_ignores_how_parameters_are_passed) {
    EXPECT_EQ((signature_text<int(int, const std::string&)>()), "i32(i32,string)");
    EXPECT_EQ((signature_text<int(const int, std::string_view)>()), "i32(i32,string)");
    EXPECT_EQ((signature_text<void()>()), "void()");
}

}  // namespace
}  // namespace amalgam
