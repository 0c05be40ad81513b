#include <algorithm>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/metrics.hpp>
#include <amalgam/rpc/ult_report.hpp>
#include <amalgam/rpc/wait_report.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/ult.hpp>

#include "rpc/limits.hpp"
#include "rpc/loop_pair.hpp"

namespace amalgam {
namespace {

const told_ult* with_id(const ult_report& in, std::uint64_t id) {
    const auto found = std::find_if(in.ults.begin(), in.ults.end(),
                                    [&](const told_ult& each) { return each.id == id; });
    return found == in.ults.end() ? nullptr : &*found;
}

TEST(ult_report, tells_a_peer_what_each_ult_waits_for_and_where_it_stands) {
    loop_pair two;
    event ends;
    two.server.define("hang", [&] { ends.wait(); });
    offer_metrics(two.server);
    future<void> done =
        two.client.spawn([&] { two.client.procedure<void()>("hang").on(two.there())(); });
    two.net.run_until_idle();
    ASSERT_FALSE(done.ready());
    const ult_report all = two.in_client([&] { return read_ults(two.client, two.there()); });
    const wait_report waits = two.in_client([&] { return read_waits(two.client); });

    EXPECT_EQ(all.process, ::getpid());
    EXPECT_EQ(all.left_out, 0u);
    ASSERT_EQ(waits.calls.size(), 1u);
    const told_ult* const caller = with_id(all, waits.calls[0].unit);
    ASSERT_NE(caller, nullptr);
    EXPECT_EQ(caller->state, ult_state::parked);
    EXPECT_EQ(caller->waits_for, "rpc reply");
    EXPECT_TRUE(std::any_of(all.ults.begin(), all.ults.end(),
                            [](const told_ult& each) { return each.waits_for == "event"; }));
#if defined(__x86_64__)
    EXPECT_GT(caller->trace.size(), 2u);
#endif
    ends.set();
    two.net.run_until_idle();
    done.get();
}

TEST(ult_report, is_for_those_who_may_read_the_numbers) {
    loop_pair closed, chosen;
    const auto asked = [](loop_pair& two) {
        return error_of([&] { two.in_client([&] { return read_ults(two.client, two.there()); }); });
    };
    const error none = asked(closed);
    EXPECT_EQ(none.code(), errc::not_found);
    EXPECT_NE(std::string_view(none.what()).find("call am::offer_metrics(engine) there"),
              std::string_view::npos)
        << none.what();
    offer_metrics(chosen.server, allow_list{.groups = {"operators"}});
    EXPECT_EQ(asked(chosen).code(), errc::denied);
}

TEST(ult_report, tells_so_many_and_counts_the_rest) {
    execution_stream worker;
    event ends;
    std::vector<ult> all;
    constexpr std::size_t more = 7;
    for (std::size_t i = 0; i < detail::limits::max_units_told + more; ++i)
        all.push_back(spawn(worker.main_pool(), [&] { ends.wait(); }));
    const ult_report told = read_ults();
    EXPECT_LE(told.ults.size(), detail::limits::max_units_told);
    EXPECT_GE(told.ults.size() + told.left_out, detail::limits::max_units_told + more);
    std::size_t bytes = 0;
    for (const told_ult& each : told.ults)
        for (const std::string& frame : each.trace)
            bytes += frame.size();
    EXPECT_LE(bytes, detail::limits::max_stack_bytes_told);
    ends.set();
    for (ult& each : all)
        each.join();
}

}  // namespace
}  // namespace amalgam
