#include <amalgam/inject/injection_ring.hpp>

#include "inject/injector_testing.hpp"

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

}  // namespace
}  // namespace amalgam
