#include "distributed/frames.hpp"

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace ff::detail {
namespace {

const std::byte* as_bytes(const std::string& text) {
    return reinterpret_cast<const std::byte*>(text.data());
}
std::string_view text_of(void* item) {
    const came_batch::view found = came_batch::look(item);
    return {found.bytes, found.size};
}

TEST(frame, is_little_endian_edge_mark_and_size) {
    std::byte bytes[frame::header_bytes];
    frame{0x01020304, 0x05060708, 0x090a0b0c0d0e0f10}.write(bytes);
    const unsigned char expected[] = {4,    3,    2,    1,    8,    7,    6,   5,
                                      0x10, 0x0f, 0x0e, 0x0d, 0x0c, 0x0b, 0xa, 9};
    EXPECT_EQ(std::memcmp(bytes, expected, sizeof expected), 0);
    const frame read = frame::read(bytes);
    EXPECT_EQ(read.edge, 0x01020304u);
    EXPECT_EQ(read.mark, 0x05060708u);
    EXPECT_EQ(read.size, 0x090a0b0c0d0e0f10u);
}

TEST(open_batch, has_the_frames_that_were_added_while_it_grew) {
    open_batch batch;
    for (int round = 0; round != 2; ++round) {  // Its memory is used again.
        std::vector<std::string> items;
        for (std::size_t i = 0; i != 300; ++i) {
            items.emplace_back(i * 7 % 200, static_cast<char>('a' + i % 26));
            batch.add({static_cast<std::uint32_t>(i), 0, items.back().size()}, items.back().data());
        }
        batch.add({300, 10, 0}, nullptr);
        ASSERT_EQ(batch.items(), 301u);
        std::size_t at = 0;
        for (std::size_t i = 0; i != 301; ++i) {
            const frame head = frame::read(batch.bytes().data() + at);
            ASSERT_EQ(head.edge, i);
            ASSERT_EQ(head.mark, i == 300 ? 10u : 0u);
            at += frame::header_bytes;
            if (i == 300) break;
            ASSERT_EQ(head.size, items[i].size());
            ASSERT_EQ(std::memcmp(batch.bytes().data() + at, items[i].data(), items[i].size()), 0);
            at += items[i].size();
        }
        ASSERT_EQ(at, batch.size());
        batch.clear();
        EXPECT_EQ(batch.size(), 0u);
    }
}

TEST(sendable, is_back_when_nobody_holds_it) {
    const auto batch = std::make_shared<sendable<open_batch>>();
    EXPECT_TRUE(is_back(*batch));
    auto held = leave(batch);
    auto also = held;
    held.reset();
    EXPECT_FALSE(is_back(*batch));
    also.reset();
    EXPECT_TRUE(is_back(*batch));
}

TEST(came_batch, lives_until_each_item_was_read) {
    for (const std::size_t size : {std::size_t{0}, std::size_t{5}, std::size_t{3000}}) {
        const std::string text(size, 'x');
        std::vector<void*> items;
        {
            const auto batch = came_batch::of(10 * came_batch::room_of(size), 10);
            for (int i = 0; i != 10; ++i)
                items.push_back(batch->add(as_bytes(text), size));
        }
        for (void* each : items) {
            EXPECT_EQ(text_of(each), text);
            came_batch::done(each);
        }
    }
}

TEST(came_batch, of_which_not_all_items_came_lives_until_those_that_did_were_read) {
    const std::string text(5000, 'x');
    void* item = nullptr;
    {
        const auto batch = came_batch::of(3 * came_batch::room_of(text.size()), 3);
        item = batch->add(as_bytes(text), text.size());
    }
    EXPECT_EQ(text_of(item), text);
    came_batch::done(item);
    const auto none = came_batch::of(came_batch::room_of(text.size()), 1);
}

TEST(came_batch, items_may_be_read_by_any_thread_in_any_order) {
    constexpr std::size_t size = 1000;
    for (int round = 0; round != 200; ++round) {
        const std::string text(size, static_cast<char>('a' + round % 26));
        std::vector<void*> items;
        {
            const auto batch = came_batch::of(20 * came_batch::room_of(size), 20);
            for (int i = 0; i != 20; ++i)
                items.push_back(batch->add(as_bytes(text), size));
        }
        int wrong = 0;
        std::thread other([&] {
            for (std::size_t i = 1; i < items.size(); i += 2)
                came_batch::done(items[i]);
        });
        for (std::size_t i = items.size(); i >= 2; i -= 2) {
            wrong += text_of(items[i - 2]) == text ? 0 : 1;
            came_batch::done(items[i - 2]);
        }
        other.join();
        ASSERT_EQ(wrong, 0);
    }
}

}  // namespace
}  // namespace ff::detail
