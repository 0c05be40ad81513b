#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/client_stream.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/extension/exposure.hpp>
#include <amalgam/rpc/metrics.hpp>
#include <amalgam/rpc/streamed.hpp>

#include "emulated.hpp"
#include "rpc/limits.hpp"
#include "rpc/loop_pair.hpp"

namespace amalgam {
namespace {

std::vector<metric_label> of(const char* procedure) {
    return {{"procedure", procedure}, {"provider", "0"}};
}

const metric_sample* latency_of(const metric_snapshot& all, std::string_view name,
                                std::string_view procedure) {
    const metric_family* const family = all.find(name);
    if (family == nullptr) return nullptr;
    for (const metric_sample& each : family->samples)
        if (each.labels.front() == metric_label{"procedure", std::string(procedure)}) return &each;
    return nullptr;
}

TEST(metrics, each_engine_counts_its_calls_by_procedure_with_failures_and_times) {
    loop_pair two;
    two.server.define("slow", [] { this_task::sleep_for(std::chrono::milliseconds(7)); });
    two.server.define("sum", [](int a, int b) { return a + b; }, {.run = handler::inline_});
    two.server.define("bad", [] { throw error(errc::invalid, "no"); }, {.run = handler::inline_});
    const peer there = two.there();
    constexpr int number = 3 * detail::limits::measured_call_in;
    two.in_client([&] {
        two.client.procedure<void()>("slow").on(there)();
        for (int i = 0; i < number; ++i)
            EXPECT_EQ(two.client.procedure<int(int, int)>("sum").on(there)(i, 1), i + 1);
        for (int i = 0; i < 3; ++i)
            EXPECT_FALSE(two.client.procedure<void()>("bad").on(there).try_call());
        EXPECT_FALSE(two.client.procedure<void()>("missing").on(there).try_call());
    });
    const metric_snapshot served = read_metrics(two.server), called = read_metrics(two.client);

    EXPECT_EQ(served.value("amalgam_rpc_handled_total", of("sum")), number);
    EXPECT_EQ(served.value("amalgam_rpc_handled_total", of("bad")), 3);
    EXPECT_EQ(served.value("amalgam_rpc_handler_failures_total", of("bad")), 3);
    EXPECT_EQ(served.value("amalgam_rpc_handler_failures_total", of("sum")), 0);
    EXPECT_EQ(served.value("amalgam_rpc_handlers_running", of("sum")), 0);
    EXPECT_EQ(served.value("amalgam_rpc_calls_total"), 0);
    const metric_sample* const sum = latency_of(served, "amalgam_rpc_handler_seconds", "sum");
    ASSERT_NE(sum, nullptr);
    // At the start each one, then ever fewer, down to one in `measured_call_in`.
    EXPECT_GE(sum->latency.count(), 5u);
    EXPECT_LE(sum->latency.count(), 20u);
    const metric_sample* const slow = latency_of(served, "amalgam_rpc_handler_seconds", "slow");
    ASSERT_NE(slow, nullptr);
    EXPECT_GE(slow->latency.quantile(0.5), std::chrono::milliseconds(6));

    EXPECT_EQ(called.value("amalgam_rpc_calls_total"), number + 5);
    EXPECT_EQ(called.value("amalgam_rpc_call_failures_total", {{"code", "not_found"}}), 1);
    EXPECT_EQ(called.value("amalgam_rpc_call_failures_total", {{"code", "handler_failed"}}), 3);
    EXPECT_EQ(called.value("amalgam_rpc_calls_pending"), 0);
    const metric_sample* const made = latency_of(called, "amalgam_rpc_call_seconds", "slow");
    ASSERT_NE(made, nullptr);  // The first call of the engine is measured.
    EXPECT_GE(made->latency.quantile(0.5), std::chrono::milliseconds(6));
    EXPECT_EQ(called.find("amalgam_rpc_handled_total"), nullptr);
    EXPECT_EQ(called.failed + served.failed, 0u);
}

TEST(metrics, a_name_that_the_program_has_taken_hides_no_other_number) {
    loop_pair two;
    two.server.define("sum", [](int a, int b) { return a + b; });
    const auto read = [] { return 3.0; };
    const auto one = metrics_of(two.server).add({"amalgam_rpc_handled_total", ""}, {}, read);
    const auto other = metrics_of(two.server).add({"process_cpu_seconds_total", ""}, {}, read);
    const metric_snapshot all = read_metrics(two.server);
    EXPECT_EQ(all.value("amalgam_rpc_handled_total"), 3);
    EXPECT_NE(all.find("amalgam_rpc_handlers_running"), nullptr);
    EXPECT_NE(all.find("amalgam_pool_ults"), nullptr);
    EXPECT_EQ(all.failed, 2u);
}

TEST(metrics, peers_ports_pools_and_the_process_are_there) {
    loop_pair two;
    const peer there = two.there();
    two.in_client([&] {
        (void)two.client.procedure<std::uint64_t(std::uint64_t)>("amalgam.ping").on(there)(1);
    });
    const metric_snapshot all = read_metrics(two.client);
    const metric_family* const peers = all.find("amalgam_rpc_peer_queued_messages");
    ASSERT_NE(peers, nullptr);
    ASSERT_EQ(peers->samples.size(), 1u);
    EXPECT_EQ(peers->samples[0].labels[0], (metric_label{"peer", there.address()}));
    ASSERT_NE(all.find("amalgam_port_queued_bytes"), nullptr);
    EXPECT_EQ(all.find("amalgam_port_queued_bytes")->samples[0].labels[1],
              (metric_label{"transport", "loop"}));
    EXPECT_NE(all.find("amalgam_pool_ready_units"), nullptr);
    if (!is_emulated()) {  // qemu_makes_proc_files_up
        EXPECT_GE(all.value("process_threads"), 1);
    }
    ASSERT_NE(all.find("amalgam_stream_cpu_seconds_total"), nullptr);
    EXPECT_EQ(all.find("amalgam_stream_asleep")->samples.size(), two.server.stream_count());
    EXPECT_EQ(all.value("amalgam_rpc_running_handlers_limit"),
              static_cast<double>(engine_options{}.max_running));
    EXPECT_EQ(all.value("amalgam_rpc_open_value_streams"), 0);
}

TEST(metrics, pools_tell_who_serves_them_and_how_many_units_were_taken) {
    engine here("shm://", {.streams = {{.name = "net"},
                                       {.name = "left", .pools = {"work"}},
                                       {.name = "right", .pools = {"work"}}},
                           .pools = {{.name = "work"}}});
    here.define("nothing", [] {}, {.in_pool = "work"});
    const auto taken = [&](const char* pool) {
        return read_metrics(here).value("amalgam_pool_taken_units_total", {{"pool", pool}});
    };
    const double before = taken("work");
    constexpr int times = 20;
    const auto nothing = here.procedure<void()>("nothing").on(here.lookup(here.address()));
    for (int i = 0; i < times; ++i)
        nothing();
    EXPECT_GE(taken("work"), before + times);
    const metric_snapshot all = read_metrics(here);
    const metric_family* const served = all.find("amalgam_pool_served");
    ASSERT_NE(served, nullptr);
    std::set<std::string> by;
    for (const metric_sample& each : served->samples)
        if (each.labels[0] == metric_label{"pool", "work"}) by.insert(each.labels[1].value);
    EXPECT_EQ(by, (std::set<std::string>{"left", "right"}));
    EXPECT_GT(taken("net"), 0);
    EXPECT_EQ(all.failed, 0u);
}

TEST(metrics, a_programs_own_counters_and_registrations_stand_beside) {
    loop_pair two;
    two.server.counters().get("billing.orders").add(4);
    auto mine =
        metrics_of(two.server).add({"shop_open", "Whether it is open."}, {}, [] { return 1.0; });
    const metric_snapshot all = read_metrics(two.server);
    EXPECT_EQ(all.value("billing_orders"), 4);
    EXPECT_EQ(all.value("shop_open"), 1);
    EXPECT_EQ(read_metrics(two.client).find("shop_open"), nullptr);
}

TEST(metrics, of_a_peer_are_read_once_it_offers_them) {
    loop_pair two;
    two.server.define("sum", [](int a, int b) { return a + b; });
    const peer there = two.there();
    const error why =
        error_of([&] { two.in_client([&] { (void)read_metrics(two.client, there); }); });
    EXPECT_EQ(why.code(), errc::not_found);
    EXPECT_NE(std::string(why.what()).find("does not offer its metrics"), std::string::npos);
    offer_metrics(two.server);
    const metric_snapshot all = two.in_client([&] {
        two.client.procedure<int(int, int)>("sum").on(there)(1, 2);
        return read_metrics(two.client, there);
    });
    EXPECT_EQ(all.value("amalgam_rpc_handled_total", of("sum")), 1);
    ASSERT_NE(all.find("amalgam_rpc_calls_total"), nullptr);
    EXPECT_EQ(all.find("amalgam_rpc_calls_total")->what.kind, metric_kind::counter);
    EXPECT_EQ(error_of([&] { offer_metrics(two.server); }).code(), errc::invalid);
}

TEST(metrics, are_denied_to_who_is_not_on_the_list) {
    loop_pair two;
    offer_metrics(two.server, allow_list{.groups = {"operators"}});
    const peer there = two.there();
    EXPECT_EQ(
        error_of([&] { two.in_client([&] { (void)read_metrics(two.client, there); }); }).code(),
        errc::denied);
}

TEST(metrics, of_an_engine_that_has_stopped_lack_what_has_ended) {
    loop_pair two;
    two.server.define("sum", [](int a, int b) { return a + b; });
    two.server.stop();
    const metric_snapshot all = read_metrics(two.server);
    EXPECT_NE(all.find("amalgam_rpc_served_total"), nullptr);
    EXPECT_EQ(all.find("amalgam_rpc_handled_total"), nullptr);
    EXPECT_EQ(all.find("amalgam_port_queued_bytes"), nullptr);
}

TEST(metrics, an_engine_may_end_while_others_read) {
    for (int round = 0; round < 20; ++round) {
        engine here("shm://");
        std::atomic<bool> begun{false}, ended{false};
        std::thread looks([&] {
            while (!ended) {
                EXPECT_NE(read_metrics(here).find("amalgam_rpc_served_total"), nullptr);
                begun = true;
            }
        });
        while (!begun)
            std::this_thread::yield();
        here.stop();
        ended = true;
        looks.join();
    }
}

TEST(metrics, bytes_are_counted_by_peer_and_by_port) {
    engine server("shm://"), client("shm://");
    server.define("length", [](const std::string& s) { return s.size(); });
    const peer there = client.lookup(server.address());
    auto length = client.procedure<std::size_t(std::string)>("length").on(there);
    EXPECT_EQ(length("to meet"), 7u);  // Names are told once.
    const std::vector<metric_label> of_port{{"port", server.address()}, {"transport", "shm"}};
    const auto received = [&] {
        return read_metrics(server).value("amalgam_port_received_bytes_total", of_port);
    };
    const double before = received();
    for (int i = 0; i < 10; ++i)
        EXPECT_EQ(length(std::string(1000, 'x')), 1000u);
    const double grew = received() - before;
    EXPECT_GE(grew, 10'000);
    EXPECT_LE(grew, 11'000);
    const metric_snapshot called = read_metrics(client);
    EXPECT_EQ(called.value("amalgam_rpc_peer_sent_messages_total", {{"peer", server.address()}}),
              11);
    EXPECT_EQ(
        called.value("amalgam_rpc_peer_received_messages_total", {{"peer", server.address()}}), 11);
    EXPECT_EQ(called.value("amalgam_rpc_peer_sent_bytes_total", {{"peer", server.address()}}),
              received());
}

TEST(metrics, bytes_of_arguments_and_results_are_counted_by_procedure_at_both_ends) {
    loop_pair two;
    two.server.define("sum", [](int a, int b) { return a + b; }, {.run = handler::inline_});
    two.server.define("twice", [](double a) { return 2 * a; });
    two.server.define("echo", [](const std::string& s) { return s; }, {.run = handler::inline_});
    two.server.define("again", [](const std::string& s) { return s; });
    two.server.define("odd",
                      [](int n) {
                          if (n % 2 == 0) throw error(errc::invalid, "even");
                          return n;
                      },
                      {.run = handler::inline_});
    const peer there = two.there();
    constexpr int number = 3 * detail::limits::measured_call_in;
    const std::string large(std::size_t{4} << 20, 'x');
    two.in_client([&] {
        auto sum = two.client.procedure<int(int, int)>("sum").on(there);
        auto twice = two.client.procedure<double(double)>("twice").on(there);
        auto odd = two.client.procedure<int(int)>("odd").on(there);
        for (int i = 0; i < number; ++i) {
            EXPECT_EQ(sum(i, 1), i + 1);
            EXPECT_EQ(twice(i), 2 * i);
            EXPECT_EQ(odd.try_call(i).ok(), i % 2 == 1);
        }
        for (int i = 0; i < 10; ++i)
            sum.post(i, i);
        for (const char* name : {"echo", "again"}) {
            auto echo = two.client.procedure<std::string(std::string)>(name).on(there);
            for (int i = 0; i < 5; ++i)
                EXPECT_EQ(echo(std::string(100, 'y')).size(), 100u);
            EXPECT_EQ(echo(large), large);  // By rendezvous, in both directions.
        }
    });
    const metric_snapshot served = read_metrics(two.server), called = read_metrics(two.client);
    const auto expect = [&](const char* name, double arguments, double results, double unsent) {
        EXPECT_EQ(served.value("amalgam_rpc_handler_received_bytes_total", of(name)), arguments)
            << name;
        EXPECT_EQ(served.value("amalgam_rpc_handler_sent_bytes_total", of(name)), results - unsent)
            << name;
        const std::vector<metric_label> here{{"procedure", name}};
        EXPECT_EQ(called.value("amalgam_rpc_call_sent_bytes_total", here), arguments) << name;
        EXPECT_EQ(called.value("amalgam_rpc_call_received_bytes_total", here), results - unsent)
            << name;
    };
    expect("sum", 8.0 * (number + 10), 4.0 * (number + 10), 4.0 * 10);
    expect("twice", 8.0 * number, 8.0 * number, 0);
    expect("odd", 4.0 * number, 4.0 * number, 4.0 * number / 2);
    const double lengths = 6 * 4;  // Before the text.
    for (const char* name : {"echo", "again"})
        expect(name, lengths + 500 + static_cast<double>(large.size()),
               lengths + 500 + static_cast<double>(large.size()), 0);
}

TEST(metrics, streams_of_values_are_counted_by_procedure_in_both_directions) {
    loop_pair two;
    two.server.define("count", [](stream_writer<int>& out, int to) {
        for (int i = 0; i < to; ++i)
            out(i);
    });
    two.server.define("add_up", [](stream_reader<int>& in) {
        in.window(4);
        int sum = 0;
        for (const int each : in)
            sum += each;
        return sum;
    });
    offer_metrics(two.server);
    const peer there = two.there();
    const auto value = [](const metric_snapshot& of, const char* name, const char* procedure,
                          const char* end, const char* direction) {
        return of.value(name, {{"procedure", procedure}, {"end", end}, {"direction", direction}});
    };
    metric_snapshot served, called;
    const auto expect = [&](const char* name, double count_is, double added) {
        EXPECT_EQ(value(served, name, "count", "handler", "sent"), count_is) << name;
        EXPECT_EQ(value(called, name, "count", "caller", "received"), count_is) << name;
        EXPECT_EQ(value(served, name, "add_up", "handler", "received"), added) << name;
        EXPECT_EQ(value(called, name, "add_up", "caller", "sent"), added) << name;
    };
    two.in_client([&] {
        auto values = two.client.procedure<streamed<int>(int)>("count").on(there).window(8)(100);
        auto up = two.client.procedure<int(streaming<int>)>("add_up").on(there).open();
        EXPECT_EQ(values.next(), 0);
        up.send(5);
        this_task::sleep_for(std::chrono::seconds(1));  // Of virtual time: both have got there.
        served = read_metrics(two.client, there);
        called = read_metrics(two.client);
        expect("amalgam_rpc_open_streams", 1, 1);
        for (int i = 1; i < 100; ++i)
            EXPECT_EQ(values.next(), i);
        EXPECT_EQ(values.next(), std::nullopt);
        for (int i = 0; i < 49; ++i)
            up.send(1);
        EXPECT_EQ(up.get(), 54);
    });
    served = read_metrics(two.server);
    called = read_metrics(two.client);
    expect("amalgam_rpc_open_streams", 0, 0);
    expect("amalgam_rpc_streams_total", 1, 1);
    expect("amalgam_rpc_stream_values_total", 100, 50);
    expect("amalgam_rpc_stream_bytes_total", 400, 200);
    constexpr const char* waits = "amalgam_rpc_stream_credit_waits_total";
    EXPECT_GE(value(served, waits, "count", "handler", "sent"), 100 / 8 - 1);
    EXPECT_GE(value(called, waits, "add_up", "caller", "sent"), 50 / 4 - 1);
}

TEST(metrics, one_sided_operations_and_registrations_are_counted_by_port) {
    loop_pair two;
    two.server.define("large", [] { return std::string(std::size_t{4} << 20, 'x'); });
    const peer there = two.there();
    two.in_client([&] {
        EXPECT_EQ(two.client.procedure<std::string()>("large").on(there)().size(), 4u << 20);
    });
    const auto of_port = [](engine& which, const char* name) {
        return read_metrics(which).value(name, {{"port", which.address()}, {"transport", "loop"}});
    };
    EXPECT_GE(of_port(two.client, "amalgam_port_gets_total"), 1);
    EXPECT_EQ(of_port(two.client, "amalgam_port_puts_total"), 0);
    EXPECT_EQ(of_port(two.client, "amalgam_port_registrations_total"), 0);
    EXPECT_EQ(of_port(two.server, "amalgam_port_registrations_total"), 1);
    EXPECT_EQ(of_port(two.server, "amalgam_port_registered_regions"), 0);
    EXPECT_EQ(of_port(two.server, "amalgam_port_gets_total"), 0);
    const detail::exposure shown(two.client.core(), {}, access::read);
    EXPECT_EQ(of_port(two.client, "amalgam_port_registered_regions"), 1);
}

TEST(metrics, what_streams_did_with_their_time_is_there) {
    engine here("shm://");
    here.define("hold", [] {
        const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
        while (std::chrono::steady_clock::now() < until) {
        }
    });
    here.procedure<void()>("hold").on(here.lookup(here.address()))();
    const metric_snapshot all = read_metrics(here);
    double longest = 0;
    for (const metric_sample& each : all.find("amalgam_stream_longest_hold_seconds")->samples)
        longest = std::max(longest, each.value);
    EXPECT_GE(longest, 0.02);
    EXPECT_NE(all.find("amalgam_stream_idle_seconds_total"), nullptr);
    EXPECT_NE(all.find("amalgam_stream_sleeps_total"), nullptr);
    EXPECT_NE(all.find("amalgam_stream_steals_total"), nullptr);
}

}  // namespace
}  // namespace amalgam
