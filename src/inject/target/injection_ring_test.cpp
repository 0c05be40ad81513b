#include <cstring>
#include <memory>

#include <amalgam/bulk/expose.hpp>
#include <amalgam/inject/injection_ring.hpp>

#include "inject/source/injector_testing.hpp"

namespace amalgam {
namespace {

TEST_F(injector_test, code_comes_by_a_ring_that_is_polled) {
    const injection_target target(at_target, open_to_all());
    injection_ring ring(target, 8192);
    at_target.define("ring", [&] { return ring.memory(); });
    injection_ring_writer writer(at_source.procedure<bulk()>("ring").on(there)());
    const injected_function function = inject.add(adder());
    EXPECT_EQ(ring.poll(), 0u);
    long expected = 0;
    for (std::size_t i = 0; i < 200; ++i) {
        const std::string some(1 + i % 100, '\2');
        const injection message = function.create(as_bytes_of(some));
        while (!writer.try_post(message))
            EXPECT_EQ(ring.poll(1), 1u) << "it is full";
        expected += static_cast<long>(message.payload().size()) * 2;
    }
    while (ring.poll() != 0) {
    }
    EXPECT_EQ(sum, expected);
    EXPECT_EQ(linked(), 1u);
    EXPECT_EQ(error_of([&] { (void)writer.try_post(function.create(9000)); }).code(),
              errc::too_large);
}

TEST_F(injector_test, a_ring_with_nonsense_in_it_runs_nothing) {
    const injection_target target(at_target, open_to_all());
    for (const std::uint32_t length : {0u, 1u, 64u, 1u << 20}) {
        injection_ring ring(target, 8192);
        at_target.define("ring", [&] { return ring.memory(); });
        const bulk memory = at_source.procedure<bulk()>("ring").on(there)();
        const std::vector<std::uint32_t> message{1, 0, 1000, 100, 0, length};
        memory.push(64, message);
        EXPECT_EQ(ring.poll(), 0u);
        injection_ring_writer(memory).post(inject.add(adder()).create(as_bytes_of(ones)));
        EXPECT_EQ(ring.poll(), 0u) << "it is closed";
        at_target.undefine("ring");
    }
    EXPECT_EQ(sum, 0);
}

/// Appends its payload's letter at the target.
const code_image& speller() {
    static const code_image image = compiled("speller", R"(
MAIN(speller) { static_cast<std::string*>(target)->push_back(*static_cast<char*>(payload)); }
)");
    return image;
}

TEST_F(injector_test, what_came_by_a_ring_runs_in_order_at_most_so_many_and_is_counted_once) {
    std::string spelt, sent;
    injection_options options = open_to_all();
    options.target_args = &spelt;
    const injection_target target(at_target, options);
    injection_ring ring(target, 8192);
    at_target.define("ring", [&] { return ring.memory(); });
    injection_ring_writer writer(at_source.procedure<bulk()>("ring").on(there)());
    const injected_function spells = inject.add(speller());
    std::size_t ran = 0;
    for (int round = 0; round < 20; ++round) {  // Wraps around several times.
        for (const char each : {'a', 'b', 'c'}) {
            injection message = spells.create(400);
            message.payload()[0] = std::byte{static_cast<unsigned char>(each)};
            ASSERT_TRUE(writer.try_post(message));
            sent += each;
        }
        EXPECT_EQ(ring.poll(2), 2u);
        EXPECT_EQ(spelt, sent.substr(0, sent.size() - 1));
        ran += 2 + ring.poll();
        EXPECT_EQ(ring.poll(), 0u);
        EXPECT_EQ(spelt, sent);
    }
    EXPECT_EQ(ran, sent.size());
    EXPECT_EQ(target.runs(), sent.size());
}

TEST_F(injector_test, a_post_into_a_full_ring_waits_for_room) {
    const injection_target target(at_target, open_to_all());
    injection_ring ring(target, 8192);  // Some messages; for AArch64 they have 2 KiB.
    at_target.define("ring", [&] { return ring.memory(); });
    injection_ring_writer writer(at_source.procedure<bulk()>("ring").on(there)());
    const injection message = inject.add(adder()).create(as_bytes_of(ones));
    long written = 0;
    while (writer.try_post(message))
        ++written;
    std::atomic<bool> posted{false};
    std::thread waits([&] {
        writer.post(message);
        posted = true;
    });
    EXPECT_FALSE(posted);
    while (!posted)
        (void)ring.poll(1);
    waits.join();
    while (ring.poll() != 0) {
    }
    EXPECT_EQ(sum, (written + 1) * 6);
}

TEST_F(injector_test, a_ring_has_a_least_and_a_most_size_and_carries_no_attached_memory) {
    const injection_target target(at_target, open_to_all());
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{4095}, (std::size_t{1} << 30) + 1})
        EXPECT_EQ(error_of([&] { injection_ring ring(target, bytes); }).code(), errc::invalid);
    injection_ring ring(target, 4096);
    injection_ring_writer writer(ring.memory());
    injection message = inject.add(adder()).create(as_bytes_of(ones));
    message.attach(ring.memory());
    EXPECT_EQ(error_of([&] { (void)writer.try_post(message); }).code(), errc::invalid);
    EXPECT_EQ(error_of([&] { (void)writer.try_post(injection()); }).code(), errc::invalid);
    // Memory that is not a ring.
    for (const std::size_t bytes : {0, 10, 64, 5000})
        EXPECT_EQ(error_of([&] {
                      injection_ring_writer(expose_owned(at_target, std::vector<std::byte>(bytes)));
                  }).code(),
                  errc::invalid);
}

TEST_F(injector_test, a_ring_that_skips_where_no_source_would_is_closed) {
    const injection_target target(at_target, open_to_all());
    for (const std::uint32_t length : {64u, 8192u - 64u}) {  // Not to the start; from the start.
        injection_ring ring(target, 8192);
        const std::vector<std::uint32_t> skip{1, 0, 0, 24, 0, length};
        ring.memory().push(64, skip);
        EXPECT_EQ(ring.poll(), 0u);
        injection_ring_writer(ring.memory()).post(inject.add(adder()).create(as_bytes_of(ones)));
        EXPECT_EQ(ring.poll(), 0u);
    }
    EXPECT_EQ(sum, 0);
}

TEST_F(injector_test, what_a_message_held_is_not_taken_for_one_that_begins_there_later) {
    const injection_target target(at_target, open_to_all());
    constexpr std::uint64_t room = 65536, head = 64, message_bytes = room / 2;
    injection_ring ring(target, room + head);
    at_target.define("ring", [&] { return ring.memory(); });
    injection_ring_writer writer(at_source.procedure<bulk()>("ring").on(there)());
    const injected_function function = inject.add(adder());
    const std::uint64_t alignment = function.image().payload_alignment();
    const std::uint64_t code_end = head + 24 + function.image().bytes().size();
    const std::uint64_t payload_at = (code_end + alignment - 1) / alignment * alignment - head;
    injection message = function.create(message_bytes - payload_at);
    // Wherever it is read again, it says that a message begins there in the second round.
    for (std::uint64_t at = 0; at < message_bytes; at += 64) {
        const std::uint64_t mark = room + at + 1;
        if (at >= payload_at)
            std::memcpy(message.payload().data() + at - payload_at, &mark, sizeof mark);
    }
    writer.post(message);
    writer.post(message);
    EXPECT_EQ(ring.poll(), 2u);
    for (int i = 0; i < 2; ++i) {
        writer.post(function.create(as_bytes_of(ones)));
        EXPECT_EQ(ring.poll(), 1u);
        EXPECT_EQ(ring.poll(), 0u);
    }
}

TEST_F(injector_test, code_in_a_ring_has_the_rights_of_its_target_which_it_may_outlive) {
    auto target = std::make_unique<injection_target>(at_target, open_to_all());
    injection_ring ring(*target, 8192);
    injection_ring_writer writer(ring.memory());
    const injection message = inject.add(adder()).create(as_bytes_of(ones));
    writer.post(message);
    EXPECT_EQ(ring.poll(), 1u);
    EXPECT_EQ(sum, 6);
    target->set_policy({});
    writer.post(message);
    EXPECT_EQ(ring.poll(), 1u) << "it came";
    EXPECT_EQ(sum, 6) << "and was refused";
    EXPECT_EQ(at_target.counters().get("inject.refused").value(), 1u);
    target->set_policy({.unsigned_too = true});
    target.reset();
    writer.post(message);
    EXPECT_EQ(ring.poll(), 1u);
    EXPECT_EQ(sum, 12);
}

TEST_F(injector_test, code_from_a_ring_has_nobody_to_give_results_to_or_to_ask) {
    std::vector<long> told;
    injection_options options = open_to_all();
    options.target_args = &told;
    options.exports["tell_for_test"] = reinterpret_cast<void*>(
        +[](void* all, long what) { static_cast<std::vector<long>*>(all)->push_back(what); });
    const injection_target target(at_target, options);
    injection_ring ring(target, 8192);
    injection_ring_writer writer(ring.memory());
    const injected_function asks = inject.add(compiled("asks", R"(
extern "C" void tell_for_test(void*, long);
extern "C" long amalgam_inject_call(const char*, const char*, const void*, std::size_t, void*, std::size_t);
extern "C" long amalgam_inject_attached(unsigned);
MAIN(asks) {
    tell_for_test(target, amalgam_inject_result("x", 1));
    tell_for_test(target, amalgam_inject_call(nullptr, "x", payload, 0, payload, 0));
    tell_for_test(target, amalgam_inject_attached(0));
}
)"));
    writer.post(asks.create(8));
    EXPECT_EQ(ring.poll(), 1u);
    EXPECT_EQ(told, std::vector<long>(3, -1));
}

}  // namespace
}  // namespace amalgam
