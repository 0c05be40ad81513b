#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/bulk/remote_copy.hpp>

#include "bulk/bulk_testing.hpp"
#include "rpc/loop_pair.hpp"

namespace amalgam {
namespace {

/// Two engines with memory, and a third that has descriptors of both.
class remote_copy_on : public testing::TestWithParam<const char*> {
protected:
    remote_copy_on() {
        for (std::size_t i = 0; i < memory.size(); ++i)
            memory[i] = static_cast<std::byte>(i * 7 + i / 251);
    }

    /// The descriptor as the third engine holds it.
    bulk held(engine& owner, const bulk& what) {
        owner.procedure<void(bulk)>("hold").on(owner.lookup(asks.address()))(what);
        return there.held;
    }
    bulk source() { return held(a, shown_source.descriptor()); }
    bulk target() { return held(b, shown_target.descriptor()); }

    engine a{one_more(GetParam())}, b{one_more(GetParam())}, asks{one_more(GetParam())};
    holder there{asks};
    std::vector<std::byte> memory = std::vector<std::byte>(5'000'001);
    std::vector<std::byte> copied = std::vector<std::byte>(memory.size());
    exposed shown_source = expose(a, memory, access::read);
    exposed shown_target = expose(b, copied, access::read_write);
};

INSTANTIATE_TEST_SUITE_P(loop, remote_copy_on, testing::Values("loop://"));
INSTANTIATE_TEST_SUITE_P(shm, remote_copy_on,
                         testing::ValuesIn(unless_thread_sanitizer({"shm://"})));
INSTANTIATE_TEST_SUITE_P(tcp, remote_copy_on, testing::Values("tcp://127.0.0.1:0"));

TEST_P(remote_copy_on, target_pulls_if_it_serves_copies) {
    const copy_service serves(b);
    EXPECT_EQ(copy(asks, source(), target()), copied_by::target);
    EXPECT_EQ(copied, memory);
    EXPECT_EQ(counters_of(asks).at("rpc.transfers"), 0u) << "the bytes came through here";
}

TEST_P(remote_copy_on, source_pushes_if_only_it_serves_copies) {
    const copy_service serves(a);
    EXPECT_EQ(copy(asks, source(), target()), copied_by::source);
    EXPECT_EQ(copied, memory);
    EXPECT_EQ(counters_of(asks).at("rpc.transfers"), 0u) << "the bytes came through here";
}

TEST_P(remote_copy_on, passes_through_who_asks_if_nobody_serves_copies) {
    EXPECT_EQ(copy(asks, source(), target(), {.chunk_bytes = 300'000, .depth = 2}),
              copied_by::here);
    EXPECT_EQ(copied, memory);
}

TEST_P(remote_copy_on, asks_the_other_if_an_owner_has_the_service_of_another_version) {
    b.define(detail::library_name{"amalgam.bulk.copy"}, [](bulk, bulk) {});
    EXPECT_EQ(copy(asks, source(), target()), copied_by::here);
    EXPECT_EQ(copied, memory);
    const copy_service of_source(a);
    EXPECT_EQ(copy(asks, source(), target()), copied_by::source);
}

TEST_P(remote_copy_on, tells_its_progress_whoever_moves_the_bytes) {
    const std::vector<std::uint64_t> by_chunk{1'000'000, 2'000'000, 3'000'000,
                                              4'000'000, 5'000'000, 5'000'001};
    std::vector<std::uint64_t> told;
    const copy_options how{.chunk_bytes = 1'000'000,
                           .on_progress = [&](std::uint64_t done) { told.push_back(done); }};
    const copy_service_options by{.chunk_bytes = 1'000'000};
    const bulk from = source(), to = target();
    EXPECT_EQ(copy(asks, from, to, how), copied_by::here);
    EXPECT_EQ(std::exchange(told, {}), by_chunk);
    const copy_service of_source(a, by);
    EXPECT_EQ(copy(asks, from, to, how), copied_by::source);
    EXPECT_EQ(std::exchange(told, {}), by_chunk);
    const copy_service of_target(b, by);
    EXPECT_EQ(start_copy(asks, from, to, how).get(), copied_by::target);
    EXPECT_EQ(told, by_chunk);
    EXPECT_EQ(copied, memory);
}

TEST_P(remote_copy_on, what_on_progress_throws_ends_it) {
    const bulk from = source(), to = target();
    const copy_options how{.chunk_bytes = 1000, .on_progress = [](std::uint64_t) {
                               throw std::runtime_error("enough");
                           }};
    const auto fails = [&] {
        const error why = error_of([&] { copy(asks, from, to, how); });
        EXPECT_EQ(why.code(), errc::handler_failed);
        EXPECT_STREQ(why.what(), "on_progress threw: enough");
        EXPECT_NE(copied.back(), memory.back()) << "the copy went on";
    };
    fails();
    const copy_service serves(b, {.chunk_bytes = 1000});
    fails();
}

TEST_P(remote_copy_on, parts_are_copied_and_nothing_around_them) {
    const copy_service serves(b);
    copy(asks, source().part(1000, 2'000'000), target().part(5, 2'000'000));
    std::vector<std::byte> expected(copied.size());
    std::copy_n(memory.begin() + 1000, 2'000'000, expected.begin() + 5);
    EXPECT_EQ(copied, expected);
}

TEST_P(remote_copy_on, own_memory_is_pushed_and_pulled_without_asking_anybody) {
    const copy_service serves(b);
    std::vector<std::byte> mine(memory.size());
    const exposed shown = expose(asks, mine, access::read_write);
    EXPECT_EQ(copy(asks, source(), shown), copied_by::here);
    EXPECT_EQ(mine, memory);
    EXPECT_EQ(copy(asks, shown, target()), copied_by::here);
    EXPECT_EQ(copied, memory);
}

TEST_P(remote_copy_on, bytes_inside_their_descriptor_are_pushed_from_here) {
    const copy_service serves(b);
    std::vector<std::byte> text(5, std::byte{7});
    const exposed shown = expose(a, text, access::read);
    EXPECT_EQ(copy(asks, held(a, shown), target().part(1, text.size())), copied_by::here);
    EXPECT_EQ(std::memcmp(copied.data() + 1, text.data(), text.size()), 0);
}

TEST_P(remote_copy_on, rights_are_those_of_the_descriptors) {
    const copy_service serves(b);
    const exposed read_only = expose(b, copied, access::read);
    EXPECT_EQ(error_of([&] { copy(asks, source(), held(b, read_only)); }).code(), errc::denied);
    const exposed write_only = expose(a, memory, access::write);
    EXPECT_EQ(error_of([&] { copy(asks, held(a, write_only), target()); }).code(), errc::denied);
    EXPECT_EQ(copied, std::vector<std::byte>(copied.size()));
}

TEST_P(remote_copy_on, memory_that_is_exposed_no_more_ends_it_as_denied) {
    const copy_service serves(b);
    const bulk from = source(), to = target();
    shown_target.close();
    EXPECT_EQ(error_of([&] { copy(asks, from, to); }).code(), errc::denied);
}

TEST_P(remote_copy_on, wrong_requests_are_refused_with_a_sentence) {
    const bulk from = source(), to = target();
    EXPECT_STREQ(error_of([&] { copy(asks, from.part(0, 3), to); }).what(),
                 "a copy from 3 bytes to 5000001, expected the same number; bulk::part() makes a "
                 "part of either");
    EXPECT_EQ(error_of([&] { copy(asks, from, bulk()); }).code(), errc::invalid);
    EXPECT_EQ(error_of([&] { copy(asks, bulk(), to); }).code(), errc::invalid);
    EXPECT_EQ(error_of([&] { copy(asks, from, to, {.depth = 0}); }).code(), errc::invalid);
    EXPECT_EQ(error_of([&] { copy_service(b, {.max_copies = 0}); }).code(), errc::invalid);
    EXPECT_EQ(error_of([&] { copy_service(b, {.chunk_bytes = 0}); }).code(), errc::invalid);
    const copy_service serves(b);
    EXPECT_EQ(error_of([&] { copy_service again(b); }).code(), errc::invalid);
}

TEST_P(remote_copy_on, an_engine_is_not_made_to_copy_between_two_others) {
    const copy_service serves(asks);
    engine fourth{one_more(GetParam())};
    holder at_fourth(fourth);
    a.procedure<void(bulk)>("hold").on(a.lookup(fourth.address()))(shown_source);
    const bulk from = at_fourth.held;
    b.procedure<void(bulk)>("hold").on(b.lookup(fourth.address()))(shown_target);
    const auto call =
        fourth.procedure<streamed<std::uint64_t>(bulk, bulk, bool)>("amalgam.bulk.copy");
    auto moved = call.on(asks.address())(from, at_fourth.held, false);
    EXPECT_EQ(error_of([&] { (void)moved.next(); }).handler_code(), errc::invalid);
}

TEST_P(remote_copy_on, ends_with_its_time_limit) {
    const copy_service serves(b);
    const auto why =
        error_of([&] { copy(asks, source(), target(), {.within = std::chrono::nanoseconds(1)}); });
    EXPECT_EQ(why.code(), errc::timed_out);
}

// Copies beyond the limit take the next way.
TEST_P(remote_copy_on, no_more_run_at_once_than_the_service_allows) {
    const copy_service serves(b, {.max_copies = 1, .chunk_bytes = 4096, .depth = 1});
    const bulk from = source(), to = target();
    std::vector<future<copied_by>> all;
    for (int i = 0; i < 8; ++i)
        all.push_back(start_copy(asks, from, to, {.chunk_bytes = 4096, .depth = 1}));
    std::size_t by_target = 0;
    for (auto& each : all)
        by_target += each.get() == copied_by::target ? 1 : 0;
    EXPECT_GE(by_target, 1u);
    EXPECT_EQ(copied, memory);
    EXPECT_EQ(copy(asks, from, to), copied_by::target) << "a place is free again";
}

TEST_P(remote_copy_on, ends_when_the_owner_of_the_source_has_gone) {
    const copy_service serves(b);
    std::optional<engine> gone(std::in_place, one_more(GetParam()));
    std::vector<std::byte> bytes(100'000);
    std::optional<exposed> shown(expose(*gone, bytes, access::read));
    const bulk from = held(*gone, *shown);
    shown.reset();
    gone.reset();
    EXPECT_NE(error_of([&] { copy(asks, from, target().part(0, bytes.size())); }).code(), errc::ok);
}

}  // namespace
}  // namespace amalgam
