#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/bulk/expose.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/coroutine.hpp>

#include "bulk/bulk_testing.hpp"

// Bulks, on every transport.

namespace amalgam {
namespace {

using namespace std::chrono_literals;

class bulk_on : public testing::TestWithParam<const char*> {
protected:
    engine server{one_more(GetParam())};
    engine client{one_more(GetParam())};
    holder there{server};
    peer to_server = client.lookup(server.address());

    /// The descriptor as the server holds it.
    bulk sent(const bulk& mine) {
        client.procedure<void(bulk)>("hold").on(to_server)(mine);
        return there.held;
    }
};

INSTANTIATE_TEST_SUITE_P(loop, bulk_on, testing::Values("loop://"));
INSTANTIATE_TEST_SUITE_P(shm, bulk_on,
                         testing::ValuesIn(unless_thread_sanitizer({"shm://", "shm://?rma=ring"})));
INSTANTIATE_TEST_SUITE_P(tcp, bulk_on, testing::Values("tcp://127.0.0.1:0"));

TEST_P(bulk_on, handler_pulls_what_it_was_sent_and_pushes_back) {
    server.define("sum", [](bulk numbers) {
        const auto all = numbers.pull_all<std::uint32_t>();
        return std::accumulate(all.begin(), all.end(), std::uint64_t{0});
    });
    server.define("double", [](bulk numbers) {
        auto all = numbers.pull_all<std::uint32_t>();
        for (auto& each : all)
            each *= 2;
        numbers.push(all);
    });
    std::vector<std::uint32_t> numbers(1 << 20);
    std::iota(numbers.begin(), numbers.end(), 0u);
    const std::uint64_t sum = std::accumulate(numbers.begin(), numbers.end(), std::uint64_t{0});
    const exposed shown = expose(client, numbers, access::read_write);
    EXPECT_EQ(client.procedure<std::uint64_t(bulk)>("sum").on(to_server)(shown), sum);
    client.procedure<void(bulk)>("double").on(to_server)(shown);
    EXPECT_EQ(std::accumulate(numbers.begin(), numbers.end(), std::uint64_t{0}), 2 * sum);
}

TEST_P(bulk_on, any_range_moves_between_any_segments) {
    std::vector<std::byte> memory = pattern(300000), mine(memory.size());
    seeded_random random(3);
    for (int round = 0; round < 25; ++round) {
        const auto far = cut(mutable_bytes(memory), 1 + random.below(20), random);
        const exposed shown = expose(client, far, access::read_write);
        const bulk held = sent(shown);
        ASSERT_EQ(held.bytes(), memory.size());
        const auto bytes = static_cast<std::size_t>(random.below(memory.size()));
        const auto offset = static_cast<std::size_t>(random.below(memory.size() - bytes));
        const bulk_options how{.chunk_bytes = round % 2 == 0 ? 0 : 1000 + random.below(50000)};
        const auto near = cut(mutable_bytes(mine).first(bytes), 1 + random.below(20), random);
        held.pull(offset, near, how);
        ASSERT_EQ(std::memcmp(mine.data(), memory.data() + offset, bytes), 0);

        const auto fresh = pattern(bytes, static_cast<unsigned>(round) + 9);
        auto model = memory;
        std::copy(fresh.begin(), fresh.end(), model.begin() + static_cast<long>(offset));
        held.push(offset, cut(const_bytes(fresh), 1 + random.below(20), random), how);
        ASSERT_TRUE(memory == model);
    }
}

TEST_P(bulk_on, every_form_brings_the_same) {
    std::vector<std::byte> memory = pattern(50000), mine(memory.size());
    const exposed shown = expose(client, memory, access::read_write);
    const bulk held = sent(shown);
    const auto has_come = [&] {
        const bool all = mine == memory;
        std::fill(mine.begin(), mine.end(), std::byte{0});
        return all;
    };
    held.pull(mine);
    EXPECT_TRUE(has_come());
    EXPECT_TRUE(held.try_pull(mine).ok());
    EXPECT_TRUE(has_come());
    held.start_pull(mine).get();
    EXPECT_TRUE(has_come());
    server.run([&] { held.pull(mine); });
    EXPECT_TRUE(has_come());
    const auto awaits = [](const bulk& what, std::vector<std::byte>& into) -> task<int> {
        co_await what.start_pull(into);
        co_return 5;
    };
    EXPECT_EQ(awaits(held, mine).get(), 5);
    EXPECT_TRUE(has_come());

    const auto fresh = pattern(memory.size(), 2);
    held.push(fresh);
    EXPECT_EQ(memory, fresh);
    EXPECT_TRUE(held.try_push(100, std::string_view("hello")).ok());
    EXPECT_EQ(std::memcmp(memory.data() + 100, "hello", 5), 0);
    held.start_push(200, std::string_view("world")).get();
    EXPECT_EQ(std::memcmp(memory.data() + 200, "world", 5), 0);
}

TEST_P(bulk_on, the_list_of_what_a_transfer_moves_may_end_once_it_has_begun) {
    std::vector<std::byte> memory = pattern(300'000), mine(memory.size());
    const exposed shown = expose(client, memory, access::read_write);
    const bulk held = sent(shown);
    seeded_random random(5);
    const auto begun_with = [&](auto list, auto begin) {
        future<void> begun = begin(list);
        for (auto& each : list)
            each = {};
        return begun;
    };
    begun_with(cut(mutable_bytes(mine), 12, random), [&](const auto& into) {
        return held.start_pull(into);
    }).get();
    EXPECT_EQ(mine, memory);
    const auto fresh = pattern(memory.size(), 6);
    begun_with(cut(const_bytes(fresh), 12, random), [&](const auto& from) {
        return held.start_push(from);
    }).get();
    EXPECT_EQ(memory, fresh);
    std::vector<std::byte> other = pattern(memory.size(), 7);
    begun_with(cut(mutable_bytes(other), 12, random), [&](const auto& from) {
        return held.start_push(from);
    }).get();
    EXPECT_EQ(memory, other);
}

TEST_P(bulk_on, refusals_say_what_was_wrong_and_move_nothing) {
    std::vector<std::byte> memory = pattern(5000), mine(6000);
    const exposed shown = expose(client, memory, access::write);
    const bulk writable = sent(shown);
    EXPECT_EQ(writable.rights(), access::write);
    auto why = writable.try_pull(std::span(mine).first(10));
    EXPECT_EQ(why.code(), errc::denied);
    EXPECT_EQ(
        why.sentence(),
        "pull of 10 bytes: the memory is exposed for writing only; expose it with access::read");
    why = writable.try_push(4999, std::span(mine).first(2));
    EXPECT_EQ(why.code(), errc::invalid);
    EXPECT_EQ(why.sentence(),
              "push of 2 bytes at offset 4999: out of range, as the bulk has 5000 bytes");
    const exposed readable = expose(client, std::as_const(memory));
    EXPECT_EQ(sent(readable).try_push(mine).code(), errc::invalid);
    EXPECT_EQ(sent(readable).start_push(std::span(mine).first(1)).wait(), errc::denied);
    EXPECT_EQ(bulk().try_pull(mine).code(), errc::invalid);
    EXPECT_TRUE(bulk().try_pull(std::span(mine).first(0)).ok());
    EXPECT_EQ(memory, pattern(5000));
    EXPECT_EQ(error_of([&] { writable.part(4000, 1001); }).code(), errc::invalid);
    EXPECT_EQ(error_of([&] { readable.descriptor().pull_all<std::array<char, 7>>(); }).code(),
              errc::invalid);
}

TEST_P(bulk_on, rights_there_are_none_of_are_not_given) {
    std::vector<std::byte> memory(5000);
    for (const int rights : {0, 4, 7})
        EXPECT_EQ(error_of([&] { (void)expose(client, memory, access(rights)); }).code(),
                  errc::invalid);
}

TEST_P(bulk_on, a_list_longer_than_all_memory_is_past_the_end) {
    std::vector<std::byte> memory = pattern(5000), mine(5000);
    const exposed shown = expose(client, memory, access::read_write);
    const bulk far = sent(shown);
    // Never accessed: their total exceeds the largest count by 10 bytes.
    const std::size_t half = std::size_t{1} << 63;
    const std::vector<mutable_bytes> list{
        {mine.data(), half}, {mine.data(), half}, {mine.data(), 10}};
    EXPECT_EQ(far.try_pull(list).code(), errc::invalid);
    EXPECT_EQ(far.try_push(list).code(), errc::invalid);
    EXPECT_EQ(memory, pattern(5000));
    EXPECT_EQ(mine, std::vector<std::byte>(5000));
}

TEST_P(bulk_on, exposed_memory_that_is_moved_to_itself_stays_exposed) {
    std::vector<std::byte> memory = pattern(5000), mine(memory.size());
    exposed shown = expose(client, memory, access::read);
    exposed& same = shown;
    shown = std::move(same);
    sent(shown).pull(mine);
    EXPECT_EQ(mine, memory);
}

TEST_P(bulk_on, memory_that_is_not_exposed_any_more_is_denied) {
    std::vector<std::byte> memory = pattern(50000), mine(memory.size());
    exposed shown = expose(client, memory, access::read_write);
    const bulk held = sent(shown);
    shown.close();
    EXPECT_EQ(held.try_pull(mine).code(), errc::denied);
    EXPECT_EQ(held.try_push(mine).code(), errc::denied);
    EXPECT_EQ(memory, pattern(50000));
    // The descriptor of the closing side knows that it is closed.
    const bulk copy = shown;
    EXPECT_EQ(copy.try_pull(mine).code(), errc::denied);
    EXPECT_EQ(error_of([&] { sent(copy); }).code(), errc::invalid);
}

TEST_P(bulk_on, short_read_only_memory_rides_inside) {
    std::string text(1000, 'x');
    std::optional<exposed> shown(expose(client, std::as_const(text)));
    const bulk held = sent(*shown);
    EXPECT_TRUE(held.is_inside());
    shown.reset();  // The bytes have already been sent.
    std::string got(1000, ' ');
    held.pull(got);
    EXPECT_EQ(got, text);
    EXPECT_EQ(held.try_push(got).code(), errc::denied);
    EXPECT_EQ(held.part(3, 5).pull_all<char>(), std::vector<char>(5, 'x'));
    std::vector<std::byte> longer(1025);
    EXPECT_FALSE(sent(expose(client, std::as_const(longer))).is_inside());
    std::vector<std::byte> writable(10);
    const exposed open = expose(client, writable, access::read_write);
    EXPECT_FALSE(sent(open).is_inside());
    // It can be passed on, too.
    holder mine(client);
    server.procedure<void(bulk)>("hold").on(server.lookup(client.address()))(held.part(1, 9));
    EXPECT_TRUE(mine.held.is_inside());
    EXPECT_EQ(mine.held.bytes(), 9u);
}

TEST_P(bulk_on, part_is_a_bulk_of_its_own) {
    std::vector<std::byte> memory = pattern(9000);
    const exposed shown = expose(client, memory, access::read);
    const bulk middle = sent(shown.descriptor().part(2000, 5000));
    EXPECT_EQ(middle.bytes(), 5000u);
    const auto got = middle.part(1000, 2000).pull_all();
    EXPECT_EQ(std::memcmp(got.data(), memory.data() + 3000, 2000), 0);
    std::vector<std::byte> more(5001);
    EXPECT_EQ(middle.try_pull(more).code(), errc::invalid);
}

TEST_P(bulk_on, what_is_exposed_no_more_is_not_given_out_as_local) {
    std::vector<std::byte> memory = pattern(1000);
    exposed shown = expose(client, memory, access::read);
    const bulk copy = shown;
    shown.close();
    EXPECT_TRUE(copy.local().empty());
}

TEST_P(bulk_on, owner_and_who_gets_it_back_reach_it_without_a_wire) {
    std::vector<std::byte> memory = pattern(4 << 20);
    const exposed shown = expose(client, memory, access::read_write);
    const bulk mine = shown;
    EXPECT_EQ(mine.local().data(), memory.data());
    EXPECT_EQ(mine.pull_all(), memory);
    // A round trip.
    server.define("give_back", [](bulk what) { return what; });
    const bulk back = client.procedure<bulk(bulk)>("give_back").on(to_server)(mine);
    EXPECT_TRUE(back.from().is_self());
    EXPECT_EQ(back.pull_all(), memory);
    back.push(7, std::string_view("home"));
    EXPECT_EQ(std::memcmp(memory.data() + 7, "home", 4), 0);
    // As an argument to ourselves.
    client.define("first", [](bulk what) { return what.part(0, 1).pull_all()[0]; });
    EXPECT_EQ(client.procedure<std::byte(bulk)>("first").on(client.address())(mine), memory[0]);
}

TEST_P(bulk_on, third_process_reaches_the_origin_when_that_listens) {
    engine third{one_more(GetParam())};
    holder at_third(third);
    std::vector<std::byte> memory = pattern(100000);
    const exposed shown = expose(client, memory, access::read_write);
    const bulk held = sent(shown);
    server.procedure<void(bulk)>("hold").on(server.lookup(third.address()))(held.part(5, 90000));
    const auto got = at_third.held.pull_all();
    EXPECT_EQ(std::memcmp(got.data(), memory.data() + 5, 90000), 0);
    at_third.held.push(0, std::string_view("third"));
    EXPECT_EQ(std::memcmp(memory.data() + 5, "third", 5), 0);
    EXPECT_EQ(at_third.held.from(), third.lookup(client.address()));
}

TEST_P(bulk_on, progress_is_told_in_chunks_and_may_end_it) {
    std::vector<std::byte> memory = pattern(1000000), mine(memory.size());
    const exposed shown = expose(client, memory, access::read);
    const bulk held = sent(shown);
    std::vector<std::uint64_t> told;
    held.pull(mine, {.chunk_bytes = 100000,
                     .on_progress = [&](std::uint64_t done) { told.push_back(done); }});
    ASSERT_EQ(told.size(), 10u);
    EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
    EXPECT_EQ(told.back(), memory.size());
    const auto why = held.try_pull(mine, {.chunk_bytes = 100000, .on_progress = [](std::uint64_t) {
                                              throw std::runtime_error("enough");
                                          }});
    EXPECT_EQ(why.code(), errc::handler_failed);
    EXPECT_NE(why.sentence().find("on_progress threw: enough"), std::string::npos)
        << why.sentence();
    const auto other = held.try_pull(mine, {.on_progress = [](std::uint64_t) { throw 7; }});
    EXPECT_EQ(other.code(), errc::handler_failed);
    EXPECT_NE(other.sentence().find("on_progress threw an exception not derived"),
              std::string::npos)
        << other.sentence();
}

TEST_P(bulk_on, abandoned_future_gives_the_bytes_back_before_it_is_gone) {
    std::vector<std::byte> memory = pattern(8 << 20), fresh(memory.size());
    const exposed shown = expose(client, memory, access::read);
    const bulk held = sent(shown);
    for (int i = 0; i < 20; ++i) {
        std::vector<std::byte> mine(memory.size());
        {
            auto later = held.start_pull(mine);
            if (i % 2 == 0) later.cancel();
        }
        // Sanitizers and valgrind detect late writes here.
        std::fill(mine.begin(), mine.end(), std::byte{1});
        EXPECT_TRUE(all_are(mine, std::byte{1}));
    }
    EXPECT_EQ(held.pull_all(), memory);
}

TEST_P(bulk_on, one_of_several_ports_is_the_one_it_came_by) {
    engine two{std::vector<std::string>{one_more(GetParam()), one_more("loop://")}};
    std::vector<std::byte> memory = pattern(20000);
    const exposed shown = expose(two, memory, access::read);
    two.procedure<void(bulk)>("hold").on(two.lookup(server.address()))(shown);
    EXPECT_EQ(there.held.pull_all(), memory);
    engine other{one_more("loop://")};
    holder at_other(other);
    two.procedure<void(bulk)>("hold").on(two.lookup(other.address()))(shown);
    EXPECT_EQ(at_other.held.pull_all(), memory);
}

class bulk_order : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(loop, bulk_order, testing::Values("loop://"));
INSTANTIATE_TEST_SUITE_P(
    others, bulk_order,
    testing::ValuesIn(unless_thread_sanitizer({"shm://", "shm://?rma=ring", "tcp://127.0.0.1:0",
                                               "ucx+tcp://127.0.0.1:0", "ofi+tcp://127.0.0.1:0"})));

// As promised by bulk::push().
TEST_P(bulk_order, what_is_sent_after_a_push_has_ended_comes_after_its_bytes) {
    std::optional<engine> server, client;
    try {
        server.emplace(std::vector<std::string>{one_more(GetParam()), one_more("loop://")});
        client.emplace(std::vector<std::string>{one_more(GetParam()), one_more("loop://")});
    } catch (const error& why) {
        GTEST_SKIP() << why.what();
    }
    std::vector<std::uint32_t> memory(200'000);
    const exposed shown = expose(*server, memory, access::write);
    int torn = 0, seen = 0;
    server->define("memory", [&] { return bulk(shown); });
    server->define("look", [&](std::uint32_t round) {
        ++seen;
        torn += std::count(memory.begin(), memory.end(), round) == 200'000 ? 0 : 1;
    });
    const auto look = client->procedure<void(std::uint32_t)>("look");
    const auto same = look.on(server->addresses().front());
    const auto other = look.on(server->addresses().back());
    const bulk far = client->procedure<bulk()>("memory").on(server->addresses().front())();
    for (std::uint32_t round = 1; round <= 20; ++round) {
        const std::vector<std::uint32_t> bytes(memory.size(), round);
        far.push(bytes);
        same.post(round);
        other.post(round);
        same(round);
        other(round);
    }
    EXPECT_EQ(torn, 0);
    EXPECT_EQ(seen, 80);
}

TEST(bulk, one_that_does_not_listen_is_reached_by_whom_it_called_and_by_nobody_else) {
    engine server{"tcp://127.0.0.1:0"}, third{"tcp://127.0.0.1:0"}, client{"tcp://"};
    holder there(server), at_third(third);
    std::vector<std::byte> memory = pattern(20000);
    const exposed shown = expose(client, memory, access::read);
    client.procedure<void(bulk)>("hold").on(server.address())(shown);
    EXPECT_EQ(there.held.pull_all(), memory);
    const error why =
        error_of([&] { server.procedure<void(bulk)>("hold").on(third.address())(there.held); });
    EXPECT_EQ(why.code(), errc::invalid);
    EXPECT_NE(std::string(why.what()).find("does not listen"), std::string::npos);
}

TEST(bulk, copies_and_descriptors_are_small) {
    EXPECT_LE(sizeof(bulk), 32u);
    EXPECT_EQ(signature_text<void(bulk)>(), "void(bulk)");
}

TEST(bulk_value, one_that_was_moved_from_names_nothing) {
    engine here{"tcp://127.0.0.1:0"};
    const std::vector<std::byte> memory = pattern(1 << 20);
    const exposed shown = expose(here, memory);
    bulk from = shown;
    bulk to = std::move(from);
    EXPECT_FALSE(from);
    EXPECT_EQ(from.bytes(), 0u);
    EXPECT_TRUE(from.pull_all().empty());
    EXPECT_THROW(from.part(0, 1), error);
    from = std::move(to);
    EXPECT_EQ(to.bytes(), 0u);
    EXPECT_TRUE(from.pull_all() == memory);
}

}  // namespace
}  // namespace amalgam
