#include <cstring>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include <gtest/gtest.h>

#include <amalgam/rpc/archive.hpp>
#include <amalgam/rpc/type_name.hpp>

#include "rpc/codec/sample_values.hpp"

// Properties of every serializable type, in both encodings.
namespace amalgam {
namespace {

constexpr encoding both[] = {encoding::native, encoding::xdr};

/// The bytes of `value` in a buffer of exact length, so that AddressSanitizer detects overruns.
template <typename T>
buffer encoded(const T& value, encoding as) {
    body into;
    archive_writer writer(into, as);
    writer(value);
    buffer exact = buffer::of(into.size());
    if (into.size() != 0) std::memcpy(exact.data(), into.bytes().data(), into.size());
    return exact;
}

bool same_bytes(const buffer& a, const buffer& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

/// Pointers and adaptors compare by their bytes, unordered containers by content.
template <typename T>
bool same_value(const T& a, const T& b) {
    if constexpr (requires {
                      { a == b } -> std::convertible_to<bool>;
                  }) {
        if (a == b) return true;
    }
    return same_bytes(encoded(a, encoding::native), encoded(b, encoding::native));
}

template <typename Check>
void for_each_sample(Check check) {
    samples::for_each([&](const auto& value) {
        for (const encoding as : both) {
            SCOPED_TRACE(type_name<std::remove_cvref_t<decltype(value)>>() +
                         (as == encoding::xdr ? " in xdr" : " in native"));
            check(value, as);
        }
    });
}

TEST(codec, every_type_comes_back_in_both_encodings) {
    for_each_sample([](const auto& value, encoding as) {
        using type = std::remove_cvref_t<decltype(value)>;
        const buffer bytes = encoded(value, as);
        archive_reader reader(bytes.bytes(), as);
        type back{};
        reader(back);
        EXPECT_TRUE(reader.ok()) << reader.why();
        EXPECT_EQ(reader.remaining(), 0u);
        EXPECT_TRUE(same_value(back, value));
    });
}

TEST(codec, pointers_that_share_an_object_arrive_as_two) {
    using two = std::pair<std::shared_ptr<int>, std::shared_ptr<int>>;
    const auto one = std::make_shared<int>(7);
    for (const encoding as : both) {
        const buffer bytes = encoded(two(one, one), as);
        archive_reader reader(bytes.bytes(), as);
        two back;
        reader(back);
        ASSERT_TRUE(reader.ok() && back.first && back.second) << reader.why();
        EXPECT_NE(back.first, back.second);
        *back.first = 8;
        EXPECT_EQ(*back.second, 7);
    }
}

TEST(codec, what_was_there_before_is_replaced) {
    for_each_sample([](const auto& value, encoding as) {
        using type = std::remove_cvref_t<decltype(value)>;
        const buffer bytes = encoded(value, as);
        const buffer empty = encoded(type{}, as);
        type back{};
        archive_reader(bytes.bytes(), as)(back);
        archive_reader(empty.bytes(), as)(back);
        EXPECT_TRUE(same_value(back, type{}));
    });
}

TEST(codec, every_type_takes_at_least_its_fewest_bytes_and_in_xdr_whole_units) {
    for_each_sample([](const auto& value, encoding as) {
        using type = std::remove_cvref_t<decltype(value)>;
        EXPECT_GE(encoded(value, as).size(), codec<type>::min_bytes);
        EXPECT_GE(encoded(type{}, as).size(), codec<type>::min_bytes);
        if (as == encoding::xdr) {
            EXPECT_EQ(encoded(value, as).size() % 4, 0u);
        }
    });
}

TEST(codec, every_shorter_message_is_refused_without_a_read_past_its_end) {
    for_each_sample([](const auto& value, encoding as) {
        using type = std::remove_cvref_t<decltype(value)>;
        const buffer bytes = encoded(value, as);
        for (std::size_t length = 0; length < bytes.size(); ++length) {
            buffer exact = buffer::of(length);
            if (length != 0) std::memcpy(exact.data(), bytes.data(), length);
            archive_reader reader(exact.bytes(), as);
            type back{};
            reader(back);
            EXPECT_FALSE(reader.ok()) << length << " of " << bytes.size();
            EXPECT_EQ(reader.remaining(), 0u);
        }
    });
}

TEST(codec, a_length_beyond_the_message_is_refused_for_every_container) {
    samples::for_each([](const auto& value) {
        using type = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::ranges::range<const type> || detail::container_adaptor<type>) {
            if (codec<type>::min_bytes != 4 || detail::has_member_save<type> ||
                detail::is_array<type>) {
                return;
            }
            for (const encoding as : both) {
                body into;
                archive_writer(into, as)(std::uint32_t{0xfffffff0}, std::uint64_t{0});
                archive_reader reader(into.bytes(), as);
                type back{};
                reader(back);
                EXPECT_EQ(reader.why(), "a length exceeds the message") << type_name<type>();
            }
        }
    });
}

TEST(codec, a_priority_queue_that_arrives_unordered_is_ordered) {
    const buffer bytes = encoded(std::vector<int>{5, 9, 1, 7}, encoding::native);
    std::priority_queue<int> back;
    archive_reader(bytes.bytes())(back);
    EXPECT_EQ(back.top(), 9);
    back.pop();
    EXPECT_EQ(back.top(), 7);
}

TEST(codec, bits_past_the_end_of_a_bitset_are_refused) {
    const buffer bytes = encoded(std::array<std::uint8_t, 2>{0xff, 0x0f}, encoding::native);
    std::bitset<11> back;
    archive_reader reader(bytes.bytes());
    reader(back);
    EXPECT_EQ(reader.why(), "a bitset has bits set beyond its size");
}

struct nothing {
    template <typename Archive>
    void serialize(Archive&) {}
};

TEST(codec, containers_of_values_without_bytes_cannot_multiply) {
    body into;
    archive_writer writer(into);
    writer(std::uint32_t{1000});
    for (std::uint32_t i = 0; i < 1000; ++i)
        writer(std::uint32_t{2000});
    archive_reader reader(into.bytes());
    std::vector<std::vector<nothing>> back;
    reader(back);
    EXPECT_EQ(reader.why(), "a length exceeds the message");
    EXPECT_LE(back.size(), 3u);
}

}  // namespace

// As in cereal's headers, which this test does not require.
}  // namespace amalgam
namespace cereal {
template <typename T>
class NameValuePair {
public:
    NameValuePair(const char* n, T v) : name(n), value(v) {}
    const char* name;
    T value;
};
template <typename Base>
struct base_class {
    explicit base_class(const Base* base) : base_ptr(const_cast<Base*>(base)) {}
    Base* base_ptr;
};
}  // namespace cereal
namespace amalgam {
namespace {

struct cereal_base {
    int a = 0;
    template <typename Archive>
    void serialize(Archive& archive) {
        archive(cereal::NameValuePair<int&>("a", a));
    }
};
struct cereal_derived : cereal_base {
    std::string b;
    template <typename Archive>
    void serialize(Archive& archive) {
        archive(cereal::base_class<cereal_base>(this), cereal::NameValuePair<std::string&>("b", b));
    }
};

TEST(codec, name_value_pairs_and_base_classes_of_cereal_are_looked_through) {
    cereal_derived sent;
    sent.a = 4;
    sent.b = "five";
    const buffer bytes = encoded(sent, encoding::native);
    EXPECT_EQ(bytes.size(), 4 + 4 + 4u);
    cereal_derived back;
    archive_reader reader(bytes.bytes());
    reader(back);
    EXPECT_TRUE(reader.ok());
    EXPECT_EQ(back.a, 4);
    EXPECT_EQ(back.b, "five");
}

}  // namespace
}  // namespace amalgam
