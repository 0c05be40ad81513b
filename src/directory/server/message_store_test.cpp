#include "directory/server/message_store.hpp"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam::detail {
namespace {

constexpr auto never = message_store::time_point::max();
constexpr resource_id here{1}, there{2}, anybody{9};

resource_message message(resource_id to, std::int32_t tag, std::size_t bytes = 0,
                         resource_id from = anybody) {
    return {from, to, tag, buffer::of(bytes)};
}

errc put(message_store& into, resource_message what) {
    return into.put(what);
}

errc code_of_take(message_store& from, resource_id to) {
    try {
        (void)from.take(to, {}, never);
        return errc::ok;
    } catch (const error& why) {
        return why.code().code;
    }
}

TEST(message_store, keeps_what_there_is_a_resource_and_room_for) {
    message_store store(3 * (256 + 1000));
    EXPECT_EQ(put(store, message(here, 1)), errc::not_found);
    store.open(here);
    for (int i = 0; i < 3; ++i)
        EXPECT_EQ(put(store, message(here, i, 1000)), errc::ok);
    EXPECT_EQ(put(store, message(here, 3)), errc::overloaded);
    EXPECT_EQ(store.take(here, {.tag = 1}, never)->tag, 1);
    EXPECT_EQ(put(store, message(here, 3)), errc::ok);
    store.close(here);
    EXPECT_EQ(store.waiting(), 0u);
    EXPECT_EQ(put(store, message(here, 1)), errc::not_found);
    store.open(there);
    EXPECT_EQ(put(store, message(there, 1, 100000)), errc::ok) << "alone it may be long";
    EXPECT_EQ(put(store, message(there, 1)), errc::overloaded);
}

TEST(message_store, what_is_hidden_takes_room_and_is_given_to_nobody_until_it_is_shown) {
    message_store store(3 * (256 + 1000));
    store.open(here);
    const auto hide = [&](std::int32_t tag, std::uint64_t why) {
        resource_message one = message(here, tag, 1000);
        return store.put(one, message_store::turn::alone, why);
    };
    EXPECT_EQ(hide(1, 7), errc::ok);
    EXPECT_EQ(hide(2, 8), errc::ok);
    EXPECT_EQ(hide(3, 7), errc::ok);
    EXPECT_EQ(hide(4, 7), errc::overloaded);
    EXPECT_FALSE(store.try_take(here, {}));
    EXPECT_FALSE(store.try_take(resource_id::none, {}));
    EXPECT_EQ(store.drop(8), 1u);
    EXPECT_EQ(store.drop(8), 0u);
    EXPECT_EQ(put(store, message(here, 5, 1000)), errc::ok);
    EXPECT_EQ(store.try_take(here, {})->tag, 5) << "what is not hidden does not wait";
    store.show(7);
    EXPECT_EQ(store.try_take(here, {})->tag, 1);
    EXPECT_EQ(store.try_take(resource_id::none, {})->tag, 3);
    EXPECT_EQ(store.waiting(), 0u);
    EXPECT_EQ(hide(6, 9), errc::ok);
    store.close(here);
    store.show(9);
    EXPECT_EQ(store.waiting(), 0u);
}

TEST(message_store, who_waits_gets_a_hidden_message_when_it_is_shown) {
    message_store store(1 << 20);
    store.open(here);
    execution_stream stream;
    resource_message hidden = message(here, 1, 10);
    EXPECT_EQ(store.put(hidden, message_store::turn::alone, 3), errc::ok);
    std::vector<std::int32_t> got;
    const auto takes = [&] {
        return spawn(stream, [&] { got.push_back(store.take(here, {}, never)->tag); });
    };
    ult first = takes(), second = takes();
    ult shows = spawn(stream, [&] {
        store.show(3);
        EXPECT_EQ(put(store, message(here, 2)), errc::ok);
    });
    for (ult* each : {&first, &second, &shows})
        each->join();
    EXPECT_EQ(got, (std::vector<std::int32_t>{1, 2}));
    EXPECT_EQ(store.waiting(), 0u);
}

TEST(message_store, a_refused_message_holds_up_those_that_follow_it) {
    message_store store(1 << 20);
    store.open(here);
    using turn = message_store::turn;
    resource_message one = message(here, 1);
    EXPECT_EQ(store.refuse(one, turn::begins), errc::overloaded);
    EXPECT_EQ(store.put(one, turn::follows), errc::overloaded);
    EXPECT_EQ(store.put(one, turn::begins), errc::ok);
    EXPECT_EQ(store.refuse(message(there, 1), turn::begins), errc::not_found);
}

TEST(message_store, any_resource_gets_what_came_first) {
    message_store store(1 << 20);
    store.open(here);
    store.open(there);
    for (int i = 0; i < 10; ++i)
        EXPECT_EQ(put(store, message(i % 3 == 0 ? here : there, i)), errc::ok);
    for (int i = 0; i < 10; ++i)
        EXPECT_EQ(store.try_take(resource_id::none, {})->tag, i);
    EXPECT_FALSE(store.try_take(resource_id::none, {}));
}

TEST(message_store, who_waits_gets_the_first_that_fits_or_hears_why_not) {
    message_store store(1 << 20);
    store.open(here);
    store.open(there);
    execution_stream stream;
    std::vector<int> order;
    const auto wait_for = [&](resource_id to, message_choice which) {
        return spawn(stream, [&store, &order, to, which] {
            const auto got = store.take(to, which, never);
            order.push_back(got->tag);
        });
    };
    ult tagged = wait_for(here, {.tag = 2}), first = wait_for(here, {}),
        any = wait_for(resource_id::none, {.tag = 3});
    ult gone = spawn(stream, [&] { EXPECT_EQ(code_of_take(store, there), errc::not_found); });
    ult sends = spawn(stream, [&] {
        EXPECT_EQ(put(store, message(here, 1)), errc::ok);
        EXPECT_EQ(put(store, message(here, 2)), errc::ok);
        EXPECT_EQ(put(store, message(here, 3)), errc::ok);
        store.close(there);
    });
    for (ult* each : {&tagged, &first, &any, &gone, &sends})
        each->join();
    EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
    EXPECT_EQ(store.waiting(), 0u);

    ult closed = spawn(stream, [&] { EXPECT_EQ(code_of_take(store, here), errc::closed); });
    ult canceled = spawn(stream, [&] { EXPECT_EQ(code_of_take(store, here), errc::canceled); });
    ult ends = spawn(stream, [&] {
        canceled.cancel();
        this_task::yield();
        store.close_all();
    });
    for (ult* each : {&closed, &canceled, &ends})
        each->join();
    EXPECT_EQ(code_of_take(store, here), errc::closed);
}

TEST(message_store, who_waits_for_room_is_told_when_there_is_some) {
    message_store store(1000);
    store.open(here);
    store.open(there);
    EXPECT_EQ(store.wait_for_room(here, 100, never), errc::ok);
    EXPECT_EQ(store.wait_for_room(anybody, 100, never), errc::not_found);
    EXPECT_EQ(put(store, message(here, 1, 500)), errc::ok);
    const auto now = std::chrono::steady_clock::now();
    EXPECT_EQ(store.wait_for_room(here, 500, now), errc::overloaded);
    execution_stream stream;
    ult waits = spawn(stream, [&] { EXPECT_EQ(store.wait_for_room(here, 500, never), errc::ok); });
    ult leaves =
        spawn(stream, [&] { EXPECT_EQ(store.wait_for_room(there, 500, never), errc::not_found); });
    ult makes = spawn(stream, [&] {
        store.close(there);
        EXPECT_TRUE(store.try_take(here, {}));
    });
    for (ult* each : {&waits, &leaves, &makes})
        each->join();
}

TEST(message_store, who_waits_for_room_is_told_when_hidden_messages_leave) {
    for (const bool shows : {false, true}) {
        message_store store(1000);
        store.open(here);
        resource_message hidden = message(here, 1, 500);
        EXPECT_EQ(store.put(hidden, message_store::turn::alone, 3), errc::ok);
        execution_stream stream;
        ult takes = spawn(stream, [&] {
            if (shows) (void)store.take(here, {}, never);
        });
        ult waits =
            spawn(stream, [&] { EXPECT_EQ(store.wait_for_room(here, 500, never), errc::ok); });
        ult leaves = spawn(stream, [&] { shows ? store.show(3) : void(store.drop(3)); });
        for (ult* each : {&takes, &waits, &leaves})
            each->join();
    }
}

TEST(message_store, who_waits_for_room_that_another_takes_first_has_not_timed_out) {
    message_store store(1000);
    store.open(here);
    EXPECT_EQ(put(store, message(here, 1, 500)), errc::ok);
    execution_stream stream;
    ult waits = spawn(stream, [&] { EXPECT_EQ(store.wait_for_room(here, 500, never), errc::ok); });
    ult takes = spawn(stream, [&] {  // Before the one that waits is on again.
        EXPECT_TRUE(store.try_take(here, {}));
        EXPECT_EQ(put(store, message(here, 2, 500)), errc::ok);
    });
    waits.join();
    takes.join();
}

TEST(message_store, refuses_what_follows_a_refused_message_until_its_sender_begins_anew) {
    using turn = message_store::turn;
    constexpr resource_id other{8}, third{7};
    message_store store(3 * 256, 2);
    store.open(here);
    const auto put_in = [&](int tag, turn in, resource_id from = anybody) {
        resource_message what = message(here, tag, 0, from);
        return store.put(what, in);
    };
    EXPECT_EQ(put_in(0, turn::begins), errc::ok);
    EXPECT_EQ(put_in(1, turn::follows), errc::ok);
    EXPECT_EQ(put_in(2, turn::follows), errc::ok);
    EXPECT_EQ(put_in(3, turn::follows), errc::overloaded);
    EXPECT_EQ(store.try_take(here, {})->tag, 0);
    EXPECT_EQ(put_in(4, turn::follows), errc::overloaded) << "there is room, but 3 comes first";
    EXPECT_EQ(put_in(9, turn::follows, other), errc::ok) << "others go on";
    EXPECT_EQ(store.try_take(here, {})->tag, 1);
    EXPECT_EQ(put_in(5, turn::alone), errc::ok) << "it is none of them";
    EXPECT_EQ(put_in(3, turn::begins), errc::overloaded);
    EXPECT_EQ(store.try_take(here, {})->tag, 2);
    EXPECT_EQ(put_in(3, turn::begins), errc::ok);
    EXPECT_EQ(store.try_take(here, {})->tag, 9);
    EXPECT_EQ(put_in(4, turn::follows), errc::ok);
    // A re-created resource has refused nobody, and the limit holds.
    EXPECT_EQ(put_in(5, turn::follows), errc::overloaded);
    store.close(here);
    store.open(here);
    EXPECT_EQ(put_in(5, turn::follows), errc::ok);
    for (int i = 0; i < 2; ++i)
        EXPECT_EQ(put_in(6, turn::follows), errc::ok);
    for (const resource_id each : {anybody, other, third})
        EXPECT_EQ(put_in(7, turn::follows, each), errc::overloaded);
    while (store.try_take(here, {})) {
    }
    EXPECT_EQ(put_in(8, turn::follows, anybody), errc::ok) << "it was forgotten for the third one";
    EXPECT_EQ(put_in(8, turn::follows, third), errc::overloaded);
}

TEST(message_store, a_resource_that_goes_gives_its_room_back) {
    message_store store(1000);
    store.open(here);
    store.open(there);
    EXPECT_EQ(put(store, message(here, 1, 300)), errc::ok);
    EXPECT_EQ(put(store, message(there, 2, 100)), errc::ok);
    EXPECT_EQ(put(store, message(there, 3, 100)), errc::overloaded);
    execution_stream stream;
    ult waits = spawn(stream, [&] { EXPECT_EQ(store.wait_for_room(there, 300, never), errc::ok); });
    ult closes = spawn(stream, [&] { store.close(here); });
    waits.join();
    closes.join();
    EXPECT_EQ(store.waiting(), 1u);
    EXPECT_EQ(put(store, message(there, 4, 300)), errc::ok);
    EXPECT_EQ(put(store, message(there, 5)), errc::overloaded) << "the room of one was given back";
}

TEST(message_store, hides_and_shows_and_drops_as_a_plain_list_would) {
    struct kept {
        resource_id to, from;
        int tag;
        std::uint64_t hidden_for;
    };
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        SCOPED_TRACE(seed);
        seeded_random random(seed);
        message_store store(1 << 20);
        std::vector<kept> plain;
        for (const resource_id each : {here, there})
            store.open(each);
        for (int step = 0; step < 2000; ++step) {
            const auto some_id = [&] { return resource_id(1 + random.below(2)); };
            const std::uint64_t number = random.below(4);
            if (random.chance(0.5)) {
                resource_message fresh = message(some_id(), step, 0, some_id());
                plain.push_back({fresh.to, fresh.from, step, number});
                ASSERT_EQ(store.put(fresh, message_store::turn::alone, number), errc::ok);
                continue;
            }
            if (number != 0 && random.chance(0.2)) {
                store.show(number);
                for (kept& each : plain)
                    if (each.hidden_for == number) each.hidden_for = 0;
                continue;
            }
            if (number != 0 && random.chance(0.2)) {
                ASSERT_EQ(store.drop(number), std::erase_if(plain, [&](const kept& each) {
                              return each.hidden_for == number;
                          }));
                continue;
            }
            const resource_id to = random.chance(0.2) ? resource_id::none : some_id();
            const message_choice which{.from = random.chance(0.5) ? some_id() : resource_id::none};
            const auto expected = std::find_if(plain.begin(), plain.end(), [&](const kept& each) {
                return each.hidden_for == 0 && (to == resource_id::none || each.to == to) &&
                       (which.from == resource_id::none || each.from == which.from);
            });
            const auto got = store.try_take(to, which);
            ASSERT_EQ(got.has_value(), expected != plain.end());
            if (!got) continue;
            ASSERT_EQ(got->tag, expected->tag);
            plain.erase(expected);
        }
        ASSERT_EQ(store.waiting(), plain.size());
    }
}

TEST(message_store, gives_what_a_plain_list_would) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        SCOPED_TRACE(seed);
        seeded_random random(seed);
        message_store store(1 << 20);
        std::vector<resource_message> plain;
        for (const resource_id each : {here, there})
            store.open(each);
        for (int step = 0; step < 2000; ++step) {
            const auto some_id = [&] { return resource_id(1 + random.below(2)); };
            if (random.chance(0.55)) {
                resource_message fresh = message(some_id(), int(random.below(4)), 0, some_id());
                plain.push_back(message(fresh.to, fresh.tag, 0, fresh.from));
                ASSERT_EQ(store.put(fresh), errc::ok);
                continue;
            }
            const resource_id to = random.chance(0.2) ? resource_id::none : some_id();
            message_choice which;
            if (random.chance(0.5)) which.from = some_id();
            if (random.chance(0.5)) which.tag = int(random.below(4));
            const auto expected =
                std::find_if(plain.begin(), plain.end(), [&](const resource_message& each) {
                    return (to == resource_id::none || each.to == to) &&
                           (which.from == resource_id::none || each.from == which.from) &&
                           (!which.tag || *which.tag == each.tag);
                });
            const auto got = store.try_take(to, which);
            ASSERT_EQ(got.has_value(), expected != plain.end());
            if (!got) continue;
            ASSERT_EQ(got->to, expected->to);
            ASSERT_EQ(got->from, expected->from);
            ASSERT_EQ(got->tag, expected->tag);
            plain.erase(expected);
        }
        ASSERT_EQ(store.waiting(), plain.size());
    }
}

TEST(message_store, each_message_of_many_threads_is_taken_once_and_in_order) {
    constexpr int writers = 3, of_each = 3000;
    message_store store(20 * 256);
    store.open(here);
    std::atomic<int> left{writers * of_each};
    std::atomic<bool> is_wrong{false};
    const auto write = [&](resource_id from, bool is_short) {
        for (int i = 0; i < of_each; ++i) {
            buffer content = buffer::of(i % 2 == 0 ? 0 : 8);
            resource_message whole{from, here, i, buffer::of(0)};
            const auto once = [&] {
                return is_short ? store.put_short(from, here, i, content) : store.put(whole);
            };
            while (once() != errc::ok)
                (void)store.wait_for_room(here, 8, never);
        }
    };
    const auto read = [&](resource_id from, bool waits) {
        for (int expected = 0; expected < of_each;) {
            resource_message got;
            const bool is_there = waits ? store.take(here, {.from = from}, never, got)
                                        : store.try_take(here, {.from = from}, got);
            if (!is_there) continue;
            if (got.from != from || got.tag != expected) is_wrong = true;
            ++expected;
            --left;
        }
    };
    std::vector<std::thread> all;
    for (int i = 1; i <= writers; ++i) {
        const resource_id from{static_cast<std::uint32_t>(i)};
        all.emplace_back([&, from, i] { write(from, i != 2); });
        all.emplace_back([&, from, i] { read(from, i != 1); });
    }
    for (std::thread& each : all)
        each.join();
    EXPECT_EQ(left, 0);
    EXPECT_FALSE(is_wrong);
    EXPECT_EQ(store.waiting(), 0u);
}

TEST(message_store, what_is_short_finds_a_receiver_of_any_resource_and_is_refused_without_room) {
    message_store store(300);
    buffer content = buffer::of(8);
    EXPECT_EQ(store.put_short(anybody, here, 1, content), errc::not_found);
    store.open(here);
    execution_stream stream;
    ult waits = spawn(stream, [&] {
        const auto got = store.take(resource_id::none, {.tag = 7}, never);
        EXPECT_EQ(got->to, here);
        EXPECT_EQ(got->from, anybody);
        EXPECT_EQ(got->content.size(), 8u);
    });
    ult puts =
        spawn(stream, [&] { EXPECT_EQ(store.put_short(anybody, here, 7, content), errc::ok); });
    waits.join();
    puts.join();
    EXPECT_EQ(store.waiting(), 0u);
    content = buffer::of(8);
    EXPECT_EQ(store.put_short(anybody, here, 8, content), errc::ok);
    content = buffer::of(200);
    EXPECT_EQ(store.put_short(anybody, here, 9, content), errc::overloaded);
    EXPECT_EQ(content.size(), 200u) << "what is refused stays its sender's";
    EXPECT_EQ(store.try_take(here, {})->tag, 8);
}

}  // namespace
}  // namespace amalgam::detail
