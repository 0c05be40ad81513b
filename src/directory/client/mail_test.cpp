#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/rpc/extension/mail.hpp>
#include <amalgam/tasks/channel.hpp>

#include "directory/protocol/procedures.hpp"

// Posted messages, which are mail and no calls.
namespace amalgam {
namespace {

using detail::at_context::mail_header;

const_bytes bytes_of(const std::string& text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

struct mail_test : testing::Test {
    static context_options at(const engine& directory) {
        return {.directory = directory.address()};
    }
    static void send(engine& from, const std::string& to, const mail_header& head,
                     const std::string& text) {
        detail::post_mail(from.core(), from.lookup(to), {head.encode(), bytes_of(text)});
    }
};

TEST_F(mail_test, of_a_process_that_the_engine_does_not_allow_is_dropped) {
    engine host("shm://"), stranger("shm://");
    engine where("shm://", {.allow = allow_list{.uids = {::geteuid() + 1}}});
    const directory_server directory(host);
    context mine(where, at(host));
    const resource to = mine.add({{"type", "to"}});
    const auto denied = [&] {
        std::uint64_t all = 0;
        for (const auto& [name, value] : where.counters().snapshot())
            if (name == "rpc.denied") all = value;
        return all;
    };
    const auto before = denied();
    send(stranger, where.address(), {resource_id{77}, to.id(), 1}, "let me in");
    while (denied() == before)
        std::this_thread::yield();
    EXPECT_FALSE(to.try_receive());
}

TEST_F(mail_test, of_any_length_and_for_anybody_harms_nobody) {
    engine host("shm://"), stranger("shm://"), where("shm://");
    const directory_server directory(host);
    context mine(where, at(host));
    const resource to = mine.add({{"type", "to"}});
    const peer there = stranger.lookup(where.address());
    const std::string whole(40, '\xff');
    for (std::size_t bytes = 0; bytes <= whole.size(); ++bytes)
        detail::post_mail(stranger.core(), there, {bytes_of(whole).first(bytes)});
    // Nobody takes the stranger's own.
    detail::post_mail(where.core(), where.lookup(stranger.address()), {bytes_of(whole)});
    send(stranger, where.address(), {resource_id{77}, to.id(), -3}, "well formed");
    const resource_message got = to.receive();
    EXPECT_EQ(got.from, resource_id{77});
    EXPECT_EQ(got.tag, -3);
    EXPECT_EQ(got.content.text(), "well formed");
    // A resource of this context can only write from here.
    send(stranger, where.address(), {to.id(), to.id(), 1}, "a lie");
    send(stranger, where.address(), {resource_id{77}, to.id(), 2}, "the end");
    EXPECT_EQ(to.receive().content.text(), "the end");
}

TEST_F(mail_test, keeps_its_order_between_two_resources_from_whatever_thread) {
    engine host("shm://");
    const directory_server directory(host);
    context one("shm://", at(host)), two("shm://", at(host));
    const resource to = one.add({{"type", "to"}}), from = two.add({{"type", "from"}});
    constexpr int all = 3000;
    std::thread([&] {
        for (int i = 0; i < all; ++i) {
            const std::string text(static_cast<std::size_t>(i) % 2000, 'x');
            // A sent one in between has those before it in front of it.
            i % 100 == 99 ? from.send(to.id(), i, text) : from.post(to.id(), i, text);
        }
    }).join();
    for (int i = 0; i < all; ++i) {
        const resource_message got = to.receive();
        ASSERT_EQ(got.tag, i);
        ASSERT_EQ(got.content.size(), static_cast<std::size_t>(i) % 2000);
    }
}

TEST_F(mail_test, has_a_checksum_where_messages_have_and_is_told_when_nobody_is_there) {
    for (const bool checked : {false, true}) {
        engine host("shm://", {.checksum = checked});
        const directory_server directory(host);
        engine here("shm://", {.checksum = checked}), there("shm://", {.checksum = checked});
        channel<undelivered_message> lost(8);
        context_options options = at(host);
        options.on_undelivered = [&](const undelivered_message& which) { lost.try_push(which); };
        context one(here, options), two(there, at(host));
        const resource from = one.add({{"type", "from"}});
        resource to = two.add({{"type", "to"}});
        from.post(to.id(), 1, "hello");
        EXPECT_EQ(to.receive().content.text(), "hello");
        const resource_id gone = to.id();
        to = resource();
        from.post(gone, 5, "hello?");
        const auto told = lost.pop();
        ASSERT_TRUE(told);
        EXPECT_EQ(told->to, gone);
        EXPECT_EQ(told->tag, 5);
        EXPECT_EQ(told->why, errc::not_found);
    }
}

TEST_F(mail_test, longer_than_a_message_may_be_comes_by_rendezvous) {
    engine host("shm://");
    const directory_server directory(host);
    context_options options = at(host);
    options.eager_bytes = std::size_t{8} << 20;
    context one("shm://", options), two("shm://", options);
    const resource to = one.add({{"type", "to"}}), from = two.add({{"type", "from"}});
    const std::string text(std::size_t{4} << 20, 'y');
    from.post(to.id(), 1, text);
    EXPECT_EQ(to.receive().content.text(), text);
}

TEST_F(mail_test, ends_with_its_context) {
    engine host("shm://"), where("shm://");
    const directory_server directory(host);
    context two("shm://", at(host));
    const resource from = two.add({{"type", "from"}});
    std::atomic<bool> over{false};
    std::atomic<resource_id> to{resource_id::none};
    std::thread sender([&] {
        while (!over) {
            try {
                from.post(to, 1, "x");
            } catch (const error&) {
                // There is none at times.
            }
        }
    });
    for (int i = 0; i < 30; ++i) {
        context mine(where, at(host));
        const resource here = mine.add({{"type", "to"}});
        to = here.id();
        (void)here.receive();
    }
    over = true;
    sender.join();
}

}  // namespace
}  // namespace amalgam
