// Messages that nobody waits for, and that are sent at once by who starts them, without a ULT.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/fabric/loop.hpp>
#include <amalgam/rpc/interceptor.hpp>
#include <amalgam/tasks/task_hook.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// A directory, a context that sends and one that receives, on a virtual-time network where little
/// is under way at once.
class started_sends : public testing::Test {
protected:
    started_sends() {
        sends = open(sender, mine);
        receives = open(receiver, box);
        in(sender, [&] { mine.send(box.id(), 0, "it is known now"); });
        in(receiver, [&] { (void)box.receive(); });
    }
    ~started_sends() override {
        in(sender, [&] {
            mine = {};
            sends.reset();
        });
        in(receiver, [&] {
            box = {};
            receives.reset();
        });
    }
    template <typename Work>
    std::invoke_result_t<Work&> in(engine& where, Work work) {
        auto done = where.spawn(std::move(work));
        for (int i = 0; i < 1000 && !done.ready(); ++i)
            net.run_for(10ms);
        if (!done.ready()) throw error(errc::timed_out, "an operation never ends");
        return done.get();
    }
    std::unique_ptr<context> open(engine& where, resource& its) {
        return in(where, [&] {
            auto made =
                std::make_unique<context>(where, context_options{.directory = host.address()});
            its = made->add({});
            return made;
        });
    }
    future<void> start(int tag, std::size_t bytes = 200) {
        return mine.start_send(box.id(), tag, sends->take_buffer(bytes));
    }
    void expect_in_order(int count) {
        in(receiver, [&] {
            for (int tag = 1; tag <= count; ++tag)
                EXPECT_EQ(box.receive().tag, tag);
        });
    }

    loop_network net{{.link_bytes = 8192}};
    const port_options never_silent{.silence_limit = 24h};
    engine host{net.port("host", never_silent)};
    directory_server directory{host, {.silence = 0ms}};
    engine sender{net.port("sender", never_silent), {.max_queued = 16}};
    engine receiver{net.port("receiver", never_silent)};
    std::unique_ptr<context> sends, receives;
    resource mine, box;
};

TEST_F(started_sends, take_no_ult_where_nothing_is_in_their_way) {
    int ults = 0;
    const task_hook counts([&](const task_event_info& each) {
        ults += each.what == task_event::created && each.kind == unit_kind::ult;
    });
    in(sender, [&] {
        for (int tag = 1; tag <= 100; ++tag)
            start(tag).get();
    });
    EXPECT_EQ(ults, 1) << "which is the one that starts them";
    expect_in_order(100);
}

TEST_F(started_sends, of_any_number_and_length_arrive_in_order) {
    constexpr int count = 300;
    std::vector<future<void>> begun;
    in(sender, [&] {
        for (int tag = 1; tag <= count; ++tag)
            begun.push_back(start(tag, tag % 100 == 50 ? 100'000 : 10));
    });
    expect_in_order(count);
    net.run_for(1s);
    for (future<void>& each : begun)
        each.get();
}

TEST_F(started_sends, may_be_more_than_are_queued_where_nobody_can_wait) {
    constexpr int count = 60;
    std::vector<future<void>> begun;
    tasklet starts = spawn_tasklet(sender.stream(), [&] {
        for (int tag = 1; tag <= count; ++tag)
            begun.push_back(start(tag, 2000));
    });
    expect_in_order(count);
    net.run_for(1s);
    starts.join();
    for (future<void>& each : begun)
        each.get();
}

TEST_F(started_sends, do_not_end_with_the_call_whose_handler_starts_them) {
    future<void> sent;
    sender.define("start", [&] { sent = start(1); });
    const peer there = in(receiver, [&] { return receiver.lookup(sender.address()); });
    in(receiver, [&] { receiver.procedure<void()>("start").on(there)(); });
    in(sender, [&] { sent.get(); });
    net.delay(100ms);
    // The handler runs after 100 ms, and the answer to its message comes after 300.
    in(receiver, [&] {
        auto start = receiver.procedure<void()>("start").on(there).within(150ms);
        EXPECT_EQ(start.try_call().code(), errc::timed_out);
    });
    in(sender, [&] { sent.get(); });
    sender.undefine("start");
}

TEST_F(started_sends, fail_where_their_receiver_is_gone_while_those_to_others_go_on) {
    const resource_id gone = box.id();
    in(receiver, [&] { box = {}; });
    in(sender, [&] {
        std::vector<future<void>> begun;
        for (int round = 0; round < 3; ++round) {
            for (int tag = 1; tag <= 3; ++tag) {
                begun.push_back(mine.start_send(gone, tag, sends->take_buffer(10)));
                mine.start_send(receives->id(), tag, sends->take_buffer(10)).get();
            }
            for (future<void>& each : begun)
                EXPECT_EQ(each.wait().code, errc::not_found);
        }
    });
    for (int tag = 0; tag < 9; ++tag)
        in(receiver, [&] { EXPECT_EQ(receives->self().receive().tag, 1 + tag % 3); });
}

TEST_F(started_sends, wait_for_room_in_their_order) {
    resource small_box;
    std::unique_ptr<context> small;
    engine third{net.port("third", never_silent)};
    in(third, [&] {
        const context_options little{.directory = host.address(), .store_bytes = 1000};
        small = std::make_unique<context>(third, little);
        small_box = small->add({});
    });
    constexpr int count = 20;
    std::vector<future<void>> begun;
    in(sender, [&] {
        mine.send(small_box.id(), 0, "it is known now");
        for (int tag = 1; tag <= count; ++tag)
            begun.push_back(mine.start_send(small_box.id(), tag, sends->take_buffer(300)));
    });
    net.run_for(1s);
    EXPECT_FALSE(begun.back().ready()) << "there was to be no room";
    in(third, [&] {
        for (int tag = 0; tag <= count; ++tag)
            EXPECT_EQ(small_box.receive().tag, tag);
    });
    in(sender, [&] {
        for (future<void>& each : begun)
            each.get();
    });
    in(third, [&] {
        small_box = {};
        small.reset();
    });
}

/// Holds up the first message that a thread begins, as preemption would.
struct held_up final : interceptor {
    bool sees_library_procedures() const noexcept override { return true; }
    void calling(outgoing_call& which) override {
        if (!is_slow || which.procedure().find("turn") == std::string_view::npos) return;
        is_held.store(true);
        is_held.notify_all();
        may_go.wait(false);
    }
    static inline thread_local bool is_slow = false;
    std::atomic<bool> is_held{false};
    std::atomic<bool> may_go{false};
};

TEST(started_sends_of_two_threads, arrive_in_their_order_though_who_begins_is_held_up) {
    loop_network net;
    const auto held = std::make_shared<held_up>();
    engine host(net.port("host", {.silence_limit = 24h}));
    directory_server directory(host, {.silence = 0ms});
    engine sender(net.port("sender", {.silence_limit = 24h}), {.interceptors = {held}});
    engine receiver(net.port("receiver", {.silence_limit = 24h}));
    const auto in = [&](engine& where, auto work) {
        auto done = where.spawn(std::move(work));
        for (int i = 0; i < 1000 && !done.ready(); ++i)
            net.run_for(10ms);
        ASSERT_TRUE(done.ready());
        done.get();
    };
    std::unique_ptr<context> sends, receives;
    resource mine, box;
    in(sender, [&] {
        sends = std::make_unique<context>(sender, context_options{.directory = host.address()});
        mine = sends->add({});
    });
    in(receiver, [&] {
        receives = std::make_unique<context>(
            receiver, context_options{.directory = host.address(), .store_bytes = 2500});
        box = receives->add({});
    });
    in(sender, [&] {
        mine.send(box.id(), 0, "it is known now");
        mine.send(box.id(), 0, std::string(1000, 'x'));
    });
    net.delay(20ms);
    std::vector<future<void>> all(3);
    const auto start = [&](int tag, std::size_t bytes) {
        all[static_cast<std::size_t>(tag - 1)] =
            mine.start_send(box.id(), tag, sends->take_buffer(bytes));
    };
    std::thread slow([&] {
        held_up::is_slow = true;
        start(1, 10);
    });
    held->is_held.wait(false);
    in(sender, [&] { start(2, 1500); });  // For which there is no room.
    held->may_go.store(true);
    held->may_go.notify_all();
    slow.join();
    in(sender, [&] { start(3, 10); });
    net.run_for(1s);
    std::vector<int> tags;
    for (int i = 0; i < 5; ++i)
        in(receiver, [&] { tags.push_back(box.receive().tag); });
    EXPECT_LT(std::find(tags.begin(), tags.end(), 2), std::find(tags.begin(), tags.end(), 3));
    net.run_for(1s);
    in(sender, [&] {
        for (future<void>& each : all)
            each.get();
        mine = {};
        sends.reset();
    });
    in(receiver, [&] {
        box = {};
        receives.reset();
    });
}

}  // namespace
}  // namespace amalgam
