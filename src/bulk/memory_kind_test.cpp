#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/bulk/memory_kind.hpp>
#include <amalgam/bulk/remote_copy.hpp>

#include "bulk/bulk_testing.hpp"

namespace amalgam {
namespace {

/// A device whose memory holds every byte inverted, so that whoever uses the pointer gets it wrong.
class inverted_kind : public memory_kind {
public:
    std::string_view name() const noexcept override { return "inverted"; }
    void* allocate(std::size_t bytes) override {
        ++blocks;
        return ::operator new(bytes);
    }
    void release(void* memory, std::size_t) noexcept override {
        --blocks;
        ::operator delete(memory);
    }
    void read(const void* memory, std::size_t offset, mutable_bytes into) override {
        before_access();
        const auto* from = static_cast<const std::byte*>(memory) + offset;
        flip(from, into.data(), into.size());
    }
    void write(void* memory, std::size_t offset, const_bytes from) override {
        before_access();
        flip(from.data(), static_cast<std::byte*>(memory) + offset, from.size());
    }

    std::atomic<int> blocks{0};
    /// What an access throws, whoever makes it: other pieces of a transfer may still be in flight.
    enum class trouble { none, a_sentence, a_number, no_memory, a_code };
    std::atomic<trouble> throws{trouble::none};
    std::atomic<bool> is_closed{false}, was_touched_when_closed{false};

private:
    static void flip(const std::byte* from, std::byte* to, std::size_t bytes) {
        std::size_t at = 0;
        for (std::uint64_t word = 0; at + sizeof word <= bytes; at += sizeof word) {
            std::memcpy(&word, from + at, sizeof word);
            word = ~word;
            std::memcpy(to + at, &word, sizeof word);
        }
        for (; at < bytes; ++at)
            to[at] = ~from[at];
    }
    void before_access() {
        if (is_closed) was_touched_when_closed = true;
        if (throws == trouble::a_sentence) throw std::runtime_error("the device is off");
        if (throws == trouble::a_number) throw 7;
        if (throws == trouble::no_memory) throw error(errc::no_memory, "the device is full");
        if (throws == trouble::a_code) throw error(errc::overloaded, "the device is busy");
    }
};

std::vector<std::byte> some_bytes(std::size_t count, unsigned seed = 1) {
    std::vector<std::byte> all(count);
    for (std::size_t i = 0; i < count; ++i)
        all[i] = static_cast<std::byte>(i * seed + i / 253);
    return all;
}

/// The owner of device memory, and a peer that has its descriptor.
class memory_kind_on : public testing::TestWithParam<const char*> {
protected:
    memory_kind_on() { device.write(block.all().memory, 0, bytes); }

    bulk sent(const bulk& what) {
        owner.procedure<void(bulk)>("hold").on(owner.lookup(other.address()))(what);
        return there.held;
    }
    std::vector<std::byte> on_device() {
        std::vector<std::byte> all(block.all().bytes);
        device.read(block.all().memory, 0, all);
        return all;
    }

    inverted_kind device;
    std::vector<std::byte> bytes = some_bytes(3'500'003);
    memory_block block{device, bytes.size()};
    engine owner{one_more(GetParam())}, other{one_more(GetParam())};
    holder there{other};
    memory_server serves{owner};
};

INSTANTIATE_TEST_SUITE_P(loop, memory_kind_on, testing::Values("loop://"));
INSTANTIATE_TEST_SUITE_P(shm, memory_kind_on,
                         testing::ValuesIn(unless_thread_sanitizer({"shm://"})));
INSTANTIATE_TEST_SUITE_P(tcp, memory_kind_on, testing::Values("tcp://127.0.0.1:0"));

TEST_P(memory_kind_on, peer_pulls_and_pushes_memory_it_cannot_point_to) {
    const served_memory shown = serves.serve(block, access::read_write);
    const bulk far = sent(shown);
    EXPECT_EQ(far.pull_all(), bytes);
    const auto fresh = some_bytes(bytes.size(), 7);
    far.push(fresh);
    EXPECT_EQ(on_device(), fresh);
    far.push(1'000'000, std::string_view("here"));
    EXPECT_EQ(std::memcmp(on_device().data() + 1'000'000, "here", 4), 0);
}

TEST_P(memory_kind_on, all_forms_and_parts_work_as_with_other_memory) {
    const served_memory shown = serves.serve(block, access::read_write);
    const bulk far = sent(shown).part(17, 2'500'000);
    std::vector<std::byte> got(2'000'000);
    std::uint64_t told = 0;
    far.start_pull(100, got, {.chunk_bytes = 300'000, .on_progress = [&](auto n) { told = n; }})
        .get();
    EXPECT_TRUE(std::equal(got.begin(), got.end(), bytes.begin() + 117));
    EXPECT_EQ(told, got.size());
    // Several segments.
    std::vector<std::byte> a(3), b(0), c(1'500'000);
    const std::vector<mutable_bytes> list{a, b, c};
    EXPECT_TRUE(far.try_pull(5, list).ok());
    EXPECT_TRUE(std::equal(a.begin(), a.end(), bytes.begin() + 22));
    EXPECT_TRUE(std::equal(c.begin(), c.end(), bytes.begin() + 25));
    std::vector<std::byte> piped;
    far.pull_pipelined(400'000, 3, [&](const_bytes chunk) {
        piped.insert(piped.end(), chunk.begin(), chunk.end());
    });
    EXPECT_TRUE(std::equal(piped.begin(), piped.end(), bytes.begin() + 17));
    EXPECT_EQ(piped.size(), far.bytes());
}

TEST_P(memory_kind_on, owner_reaches_it_by_its_own_descriptor_and_one_that_came_back) {
    const served_memory shown = serves.serve(block, access::read);
    EXPECT_EQ(shown.descriptor().pull_all(), bytes);
    EXPECT_TRUE(shown.descriptor().local().empty());
    other.define("give_back", [](bulk what) { return what; });
    const bulk back =
        owner.procedure<bulk(bulk)>("give_back").on(other.address())(shown.descriptor());
    EXPECT_TRUE(back.from().is_self());
    EXPECT_EQ(back.pull_all(), bytes);
}

TEST_P(memory_kind_on, third_engine_reaches_it_and_copies_it) {
    engine third{one_more(GetParam())};
    holder at_third(third);
    const served_memory shown = serves.serve(block, access::read);
    other.procedure<void(bulk)>("hold").on(other.lookup(third.address()))(sent(shown));
    EXPECT_EQ(at_third.held.pull_all(), bytes);
    std::vector<std::byte> target(bytes.size());
    const exposed into = expose(third, target, access::read_write);
    copy(third, at_third.held, into);
    EXPECT_EQ(target, bytes);
}

TEST_P(memory_kind_on, own_device_memory_is_filled_from_a_bulk_and_written_to_one) {
    std::vector<std::byte> source = some_bytes(bytes.size(), 5);
    const exposed shown = expose(owner, source, access::read_write);
    const bulk far = sent(shown);
    memory_block mine(device, source.size());
    pull(far, mine);
    std::vector<std::byte> got(source.size());
    device.read(mine.all().memory, 0, got);
    EXPECT_EQ(got, source);
    device.write(mine.all().memory, 9, as_bytes_of(std::string_view("device")));
    push(far, mine);
    EXPECT_EQ(std::memcmp(source.data() + 9, "device", 6), 0);
}

TEST_P(memory_kind_on, device_to_device) {
    inverted_kind second;
    memory_block into(second, bytes.size());
    const served_memory shown = serves.serve(block, access::read);
    pull(sent(shown), into);
    std::vector<std::byte> got(bytes.size());
    second.read(into.all().memory, 0, got);
    EXPECT_EQ(got, bytes);
}

TEST_P(memory_kind_on, rights_ranges_and_closed_memory_are_refused) {
    served_memory reads = serves.serve(block, access::read);
    const bulk far = sent(reads);
    EXPECT_EQ(far.try_push(bytes).code(), errc::denied);
    const served_memory writes = serves.serve(block, access::write);
    EXPECT_EQ(sent(writes).try_pull(bytes).code(), errc::denied);
    // A peer that ignores what its descriptor says.
    const auto call =
        other.procedure<std::vector<std::byte>(std::uint64_t, std::uint64_t, std::uint32_t)>(
            "amalgam.bulk.read");
    EXPECT_EQ(call.on(owner.address()).try_call(12345, 0, 10).code().handler_code(), errc::denied);
    EXPECT_EQ(call.on(owner.address()).try_call(12345, 0, 1 << 30).code().handler_code(),
              errc::invalid);
    reads.close();
    EXPECT_EQ(far.try_pull(bytes).code(), errc::denied);
    EXPECT_EQ(error_of([&] { (void)serves.serve({}, access::read); }).code(), errc::invalid);
    EXPECT_EQ(error_of([&] { (void)serves.serve(block, access{9}); }).code(), errc::invalid);
    const memory_view endless{&device, block.all().memory, 8, static_cast<std::size_t>(-4)};
    EXPECT_EQ(error_of([&] { (void)serves.serve(endless, access::read); }).code(), errc::invalid);
    EXPECT_EQ(error_of([&] { memory_server again(owner); }).code(), errc::invalid);
    EXPECT_EQ(error_of([&] { memory_server none(other, {.buffers = 0}); }).code(), errc::invalid);
    EXPECT_EQ(error_of([&] { pull(far.part(0, 3), block); }).code(), errc::invalid);
    EXPECT_EQ(error_of([&] { push(far, {}); }).code(), errc::invalid);
}

TEST_P(memory_kind_on, what_the_kind_throws_ends_the_transfer) {
    const served_memory shown = serves.serve(block, access::read_write);
    const bulk far = sent(shown);
    device.throws = inverted_kind::trouble::a_sentence;
    const auto why = error_of([&] { far.pull_all(); });
    EXPECT_EQ(why.code(), errc::handler_failed);
    EXPECT_NE(std::string(why.what()).find("the device is off"), std::string::npos);
    device.throws = inverted_kind::trouble::a_number;
    EXPECT_EQ(far.try_push(bytes).code(), errc::handler_failed);
    device.throws = inverted_kind::trouble::no_memory;
    EXPECT_EQ(far.try_pull(bytes).code(), errc::no_memory);
    EXPECT_EQ(far.try_push(bytes).code(), errc::no_memory);
    device.throws = inverted_kind::trouble::a_code;
    const auto busy = far.try_pull(bytes);
    EXPECT_EQ(busy.code(), errc::overloaded);
    EXPECT_NE(busy.sentence().find("the device is busy"), std::string::npos);
    device.throws = inverted_kind::trouble::none;
    EXPECT_EQ(far.pull_all(), bytes);
}

TEST_P(memory_kind_on, nobody_touches_closed_memory) {
    served_memory shown = serves.serve(block, access::read_write);
    const bulk far = sent(shown);
    std::vector<std::byte> got(bytes.size());
    std::vector<future<void>> all;
    for (int i = 0; i < 20; ++i)
        all.push_back(far.start_pull(got, {.chunk_bytes = 10'000}));
    (void)all[0].wait();
    shown.close();
    device.is_closed = true;
    for (auto& each : all) {
        const status what = each.wait();
        EXPECT_TRUE(what.ok() || what == errc::denied) << name(what.code);
    }
    EXPECT_FALSE(device.was_touched_when_closed);
}

TEST_P(memory_kind_on, an_abandoned_pull_lets_its_bytes_go) {
    const served_memory shown = serves.serve(block, access::read);
    const bulk far = sent(shown);
    for (int i = 0; i < 20; ++i) {
        auto gone = std::make_unique<std::vector<std::byte>>(bytes.size());
        auto pulls = far.start_pull(*gone, {.chunk_bytes = 50'000});
        if (i % 2 == 0) (void)pulls.wait_for(std::chrono::microseconds(100 * i));
        pulls = {};
        gone.reset();
    }
    EXPECT_EQ(far.pull_all(), bytes);
}

TEST_P(memory_kind_on, ends_with_its_time_limit_and_with_its_owner) {
    std::optional<engine> short_lived(std::in_place, one_more(GetParam()));
    std::optional<memory_server> server(std::in_place, *short_lived);
    std::optional<served_memory> shown(server->serve(block, access::read));
    short_lived->procedure<void(bulk)>("hold").on(short_lived->lookup(other.address()))(*shown);
    const bulk far = there.held;
    std::vector<std::byte> got(bytes.size());
    EXPECT_EQ(far.try_pull(got, {.within = std::chrono::nanoseconds(1)}).code(), errc::timed_out);
    auto pulls = far.start_pull(got, {.chunk_bytes = 1000});
    shown.reset();
    server.reset();
    short_lived.reset();
    EXPECT_FALSE(pulls.wait().ok());
    EXPECT_FALSE(far.try_pull(got).ok());
}

TEST_P(memory_kind_on, what_is_in_flight_when_its_server_ends_is_denied) {
    engine owns{one_more(GetParam())};
    std::optional<memory_server> server(std::in_place, owns);
    const served_memory shown = server->serve(block, access::read);
    owns.procedure<void(bulk)>("hold").on(owns.lookup(other.address()))(shown);
    const bulk far = there.held;
    std::vector<std::byte> got(bytes.size());
    std::vector<future<void>> all;
    for (int i = 0; i < 10; ++i)
        all.push_back(far.start_pull(got, {.chunk_bytes = 10'000}));
    server.reset();
    for (auto& each : all) {
        const status what = each.wait();
        EXPECT_TRUE(what.ok() || what == errc::denied) << name(what.code);
    }
    EXPECT_EQ(far.try_pull(got).code(), errc::denied);
}

TEST_P(memory_kind_on, after_stop_all_is_closed) {
    const served_memory shown = serves.serve(block, access::read);
    owner.stop();
    std::vector<std::byte> got(bytes.size());
    const bulk own = shown;
    EXPECT_EQ(own.try_pull(got).code(), errc::closed);
    EXPECT_EQ(own.start_pull(got).wait(), errc::closed);
    EXPECT_EQ(error_of([&] { (void)serves.serve(block, access::read); }).code(), errc::closed);
}

TEST(memory_kind, blocks_return_to_their_kind) {
    inverted_kind device;
    {
        memory_block one(device, 10), two(std::move(one));
        one = memory_block(device, 20);
        EXPECT_EQ(device.blocks, 2);
        two = std::move(one);
        EXPECT_EQ(two.all().bytes, 20u);
    }
    EXPECT_EQ(device.blocks, 0);
    memory_block host(host_memory(), 100);
    host_memory().write(host.all().memory, 3, as_bytes_of(std::string_view("abc")));
    std::vector<std::byte> got(3);
    host_memory().read(host.all().memory, 3, got);
    EXPECT_EQ(std::memcmp(got.data(), "abc", 3), 0);
    EXPECT_EQ(host_memory().name(), "host");
}

}  // namespace
}  // namespace amalgam
