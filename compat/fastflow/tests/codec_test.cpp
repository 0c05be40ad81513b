#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <ff/dff.hpp>
#include <gtest/gtest.h>

namespace ff {
namespace {

/// Counts those that are there.
template <int Which>
struct counted {
    counted() { ++alive; }
    counted(const counted&) = delete;
    counted& operator=(const counted&) = delete;
    ~counted() { --alive; }
    static inline int alive = 0;
};

struct by_archive : counted<0> {
    template <typename Archive>
    void serialize(Archive& archive) {
        archive(text);
    }
    std::string text;
};
struct by_members : counted<1> {
    serializedBuffer_t serialize() { return {nullptr, 0}; }
    bool deserialize(char*, size_t) { throw std::runtime_error("too short"); }
    static by_members* alloc(char*, size_t) { return new by_members; }
    static void freeTask(by_members* item) { delete item; }
};
struct by_functions : counted<2> {};
bool serialize(std::pair<char*, size_t>&, by_functions*) {
    return true;
}
bool deserialize(const std::pair<char*, size_t>&, by_functions*) {
    throw std::runtime_error("too short");
}

template <typename T>
struct node : ff_node_t<T> {
    T* svc(T* item) override { return item; }
};

/// Bytes that are no item of the type.
template <typename T>
void expect_throw(node<T>& reader) {
    char bytes[9];
    std::memset(bytes, 0x7f, sizeof bytes);  // The length of a string, after the byte order.
    bytes[0] = 1;
    message2_t came(bytes, sizeof bytes, false);
    bool copied = true;
    EXPECT_THROW(reader.deserializeF(&came, copied, &reader), std::exception);
}

template <typename T>
class fastflow_half_read_item : public testing::Test {};
using items = testing::Types<by_archive, by_members, by_functions>;
TYPED_TEST_SUITE(fastflow_half_read_item, items);

TYPED_TEST(fastflow_half_read_item, goes_when_reading_it_throws) {
    node<TypeParam> reader;
    expect_throw(reader);
    EXPECT_EQ(TypeParam::alive, 0);
}

TYPED_TEST(fastflow_half_read_item, stays_where_the_program_has_made_it) {
    node<TypeParam> reader;
    std::unique_ptr<TypeParam> made;
    reader.alloctaskF = [&](char*, size_t) -> void* {
        made = std::make_unique<TypeParam>();
        return made.get();
    };
    expect_throw(reader);
    EXPECT_EQ(TypeParam::alive, 1);
}

}  // namespace
}  // namespace ff
