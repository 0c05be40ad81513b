#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/tasks/ult.hpp>

// Contexts on engines with two streams.
namespace amalgam {
namespace {

// They go on now on the engine's first stream, now on the other one.
TEST(two_streams, ults_that_move_between_them_send_start_and_post_in_order) {
    constexpr std::int32_t messages = 4000;
    constexpr std::size_t ults = 3;
    engine host("shm://"), there("shm://");
    engine here("shm://", {.streams = {{.pools = {"work"}}, {.pools = {"work"}}},
                           .pools = {{"work"}},
                           .handlers = "work"});
    const directory_server directory(host);
    context sends(here, {.directory = host.address()}), gets(there, {.directory = host.address()});
    std::vector<resource> from, to;
    for (std::size_t i = 0; i < ults; ++i) {
        from.push_back(sends.add({{"type", "from"}}));
        to.push_back(gets.add({{"type", "to"}}));
    }
    std::vector<ult> senders;
    for (std::size_t by = 0; by < ults; ++by) {
        senders.push_back(spawn(here.pool("work"), [&, by] {
            std::vector<future<void>> started;
            const std::string text(8, 'x');
            for (std::int32_t i = 0; i < messages; ++i) {
                const bool in_runs = i / 100 % 2 == 0;  // Of posts, and of all kinds in turn.
                if (in_runs || i % 3 == 0) {
                    from[by].post(to[by].id(), i, text);
                } else if (i % 3 == 1) {
                    from[by].send(to[by].id(), i, text);
                } else {
                    message_buffer content = sends.take_buffer(text.size());
                    started.push_back(from[by].start_send(to[by].id(), i, std::move(content)));
                }
                this_task::yield();
            }
            for (future<void>& each : started)
                each.get();
        }));
    }
    for (std::size_t by = 0; by < ults; ++by) {
        std::int32_t misplaced = 0;
        for (std::int32_t i = 0; i < messages; ++i)
            misplaced += to[by].receive().tag == i ? 0 : 1;
        EXPECT_EQ(misplaced, 0);
    }
    for (ult& each : senders)
        each.join();
}

// What tells them waits for the first stream itself, and must not hold a lock meanwhile.
TEST(two_streams, senders_that_wait_for_room_do_not_stop_the_receiver) {
    constexpr std::size_t senders = 6, each_sends = 200;
    engine host("shm://"), here("shm://");
    engine there("shm://", {.progress = {.by = progress_by::own_stream}});
    const directory_server directory(host);
    context sends(here, {.directory = host.address()});
    context gets(there, {.directory = host.address(), .store_bytes = 1000});
    const resource to = gets.add({{"type", "to"}});
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < senders; ++i) {
        threads.emplace_back([&] {
            for (std::size_t k = 0; k < each_sends; ++k)
                sends.self().send(to.id(), 1, "12345678");
        });
    }
    for (std::size_t i = 0; i < senders * each_sends; ++i)
        EXPECT_EQ(to.receive().content.text(), "12345678");
    for (std::thread& each : threads)
        each.join();
}

}  // namespace
}  // namespace amalgam
