#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <amalgam/core/log.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/rpc/engine_config.hpp>
#include <amalgam/rpc/engine_statistics.hpp>
#include <amalgam/rpc/extension/exposure.hpp>
#include <amalgam/rpc/extension/transfer.hpp>
#include <amalgam/rpc/interceptor.hpp>
#include <amalgam/rpc/raw_call.hpp>

#include "rpc/limits.hpp"
#include "rpc/loop_pair.hpp"
#include "rpc/statistics/summed_value.hpp"
#include "temp_folder.hpp"
#include "thrown.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

engine_options counting(statistics_options how = {}) {
    engine_options options;
    options.statistics = std::move(how);
    return options;
}

/// What a summary of these is, by the definition.
value_summary model_of(const std::vector<std::uint64_t>& values) {
    value_summary all{.num = values.size(),
                      .min = *std::min_element(values.begin(), values.end()),
                      .max = *std::max_element(values.begin(), values.end())};
    for (const std::uint64_t each : values)
        all.sum += each;
    const long double mean = static_cast<long double>(all.sum) / static_cast<long double>(all.num);
    long double around = 0;
    for (const std::uint64_t each : values) {
        const long double off = static_cast<long double>(each) - mean;
        around += off * off;
    }
    all.mean = static_cast<double>(mean);
    all.variance = static_cast<double>(around / static_cast<long double>(all.num));
    return all;
}

void expect_like(const value_summary& got, const value_summary& model) {
    EXPECT_EQ(got.num, model.num);
    EXPECT_EQ(got.min, model.min);
    EXPECT_EQ(got.max, model.max);
    EXPECT_EQ(got.sum, model.sum);
    EXPECT_DOUBLE_EQ(got.mean, model.mean);
    EXPECT_NEAR(got.variance, model.variance, model.variance * 1e-9);
}

std::vector<std::uint64_t> in_nanoseconds(std::initializer_list<int> milliseconds) {
    std::vector<std::uint64_t> all;
    for (const int each : milliseconds)
        all.push_back(static_cast<std::uint64_t>(each) * 1'000'000);
    return all;
}

std::string content_of(const std::string& file) {
    std::ifstream from(file);
    std::stringstream all;
    all << from.rdbuf();
    return all.str();
}

/// What a client calls in a ULT of its own, until the network is idle.
template <typename Work>
void run(loop_network& net, engine& client, Work work) {
    auto done = client.spawn(std::move(work));
    net.run_until_idle();
    ASSERT_TRUE(done.ready());
    done.get();
}

void wait_for(int ms) {
    this_task::sleep_for(std::chrono::milliseconds(ms));
}

TEST(summed_values, are_what_their_definition_says) {
    seeded_random random(11);
    for (const std::uint64_t around : {std::uint64_t{0}, std::uint64_t{1'000'000'000'000'000}}) {
        detail::summed_value sum;
        std::vector<std::uint64_t> values;
        for (int i = 0; i < 1000; ++i) {
            values.push_back(around + random.below(1000));
            sum.add(values.back());
        }
        expect_like(sum.read().told(), model_of(values));
    }
    EXPECT_EQ(detail::summed_value().read().told(), value_summary{});
}

TEST(summed_values, of_several_threads_miss_nothing) {
    constexpr std::uint64_t each_adds = 20'000;
    // Squares that carry into the upper word most of the time.
    constexpr std::uint64_t least = 3'000'000'000;
    detail::summed_value sum;
    std::vector<std::uint64_t> values;
    for (std::uint64_t i = 0; i < 4 * each_adds; ++i)
        values.push_back(least + i);
    std::vector<std::thread> all;
    for (std::uint64_t n = 0; n < 4; ++n) {
        all.emplace_back([&, n] {
            for (std::uint64_t i = 0; i < each_adds; ++i)
                sum.add(values[n * each_adds + i]);
        });
    }
    for (std::thread& each : all)
        each.join();
    expect_like(sum.read().told(), model_of(values));
}

TEST(engine_statistics, have_a_row_for_each_procedure_and_peer) {
    loop_network net;
    engine one{net.port("one"), counting()};
    engine two{net.port("two")};
    engine client{net.port("client"), counting()};
    for (engine* const each : {&one, &two}) {
        each->define("wait", wait_for, {.provider = 2});
        each->define("fail", [] { throw std::runtime_error("no"); });
    }
    const peer first = client.lookup(one.address());
    const peer second = client.lookup(two.address());
    net.run_until_idle();
    net.delay(5ms);
    run(net, client, [&] {
        const auto wait = client.procedure<void(int)>("wait");
        for (const int ms : {1, 3, 8})
            wait.on(first, 2)(ms);
        wait.on(second, 2)(2);
        wait.on(first, 2).post(4);
        EXPECT_FALSE(client.procedure<void()>("fail").on(second).try_call());
    });
    const engine_statistics here = read_statistics(client);
    ASSERT_EQ(here.calls.size(), 3u);
    EXPECT_EQ(here.calls[0].path, (call_path{"fail", 0, two.address(), {}, 0}));
    EXPECT_EQ(here.calls[0].failures, 1u);
    expect_like(here.calls[0].took, model_of(in_nanoseconds({10})));
    EXPECT_EQ(here.calls[1].path, (call_path{"wait", 2, one.address(), {}, 0}));
    EXPECT_EQ(here.calls[1].failures, 0u);
    expect_like(here.calls[1].took, model_of(in_nanoseconds({11, 13, 18})));
    EXPECT_EQ(here.calls[2].path.peer, two.address());
    expect_like(here.calls[2].took, model_of(in_nanoseconds({12})));
    EXPECT_TRUE(here.handlers.empty());
    const engine_statistics there = read_statistics(one);
    ASSERT_EQ(there.handlers.size(), 1u);
    EXPECT_EQ(there.handlers[0].path, (call_path{"wait", 2, client.address(), {}, 0}));
    expect_like(there.handlers[0].ran, model_of(in_nanoseconds({1, 3, 8, 4})));
    EXPECT_EQ(there.handlers[0].waited.num, 4u);
    EXPECT_EQ(there.handlers[0].waited.max, 0u);
    EXPECT_TRUE(there.calls.empty());
}

TEST(engine_statistics, tell_how_long_a_handler_waited_for_its_stream) {
    loop_network net;
    engine server{net.port("server"), counting()};
    engine client{net.port("client")};
    auto& time = const_cast<manual_clock&>(dynamic_cast<const manual_clock&>(net.time()));
    server.define("compute", [&](int ms) { time.advance(std::chrono::milliseconds(ms)); });
    server.define("inside", [&] { time.advance(2ms); }, {.run = handler::inline_});
    const peer to = client.lookup(server.address());
    run(net, client, [&] {
        const auto compute = client.procedure<void(int)>("compute").on(to);
        auto first = compute.start(4);
        auto second = compute.start(3);
        first.get();
        second.get();
        client.procedure<void()>("inside").on(to)();
    });
    const engine_statistics there = read_statistics(server);
    ASSERT_EQ(there.handlers.size(), 2u);
    expect_like(there.handlers[0].ran, model_of(in_nanoseconds({4, 3})));
    expect_like(there.handlers[0].waited, model_of(in_nanoseconds({0, 4})));
    EXPECT_EQ(there.handlers[1].path.procedure, "inside");
    expect_like(there.handlers[1].ran, model_of(in_nanoseconds({2})));
}

TEST(engine_statistics, tell_at_both_ends_which_handler_made_a_call) {
    loop_network net;
    engine last{net.port("last"), counting()};
    engine middle{net.port("middle"), counting()};
    engine client{net.port("client"), counting()};
    last.define("inner", wait_for);
    const peer below = middle.lookup(last.address());
    middle.define("outer", [&](int ms) { middle.procedure<void(int)>("inner").on(below)(ms); },
                  {.provider = 4});
    const peer to = client.lookup(middle.address());
    run(net, client, [&] { client.procedure<void(int)>("outer").on(to, 4)(6); });
    run(net, middle, [&] { middle.procedure<void(int)>("inner").on(below)(1); });
    const engine_statistics between = read_statistics(middle);
    ASSERT_EQ(between.handlers.size(), 1u);
    EXPECT_EQ(between.handlers[0].path, (call_path{"outer", 4, client.address(), {}, 0}));
    ASSERT_EQ(between.calls.size(), 2u);
    EXPECT_EQ(between.calls[0].path, (call_path{"inner", 0, last.address(), {}, 0}));
    EXPECT_EQ(between.calls[1].path, (call_path{"inner", 0, last.address(), "outer", 4}));
    EXPECT_EQ(between.calls[1].took.num, 1u);
    const engine_statistics end = read_statistics(last);
    ASSERT_EQ(end.handlers.size(), 2u);
    EXPECT_EQ(end.handlers[0].path.parent, "");
    expect_like(end.handlers[0].ran, model_of(in_nanoseconds({1})));
    EXPECT_EQ(end.handlers[1].path, (call_path{"inner", 0, middle.address(), "outer", 4}));
    expect_like(end.handlers[1].ran, model_of(in_nanoseconds({6})));
}

TEST(engine_statistics, take_no_name_of_a_calling_handler_that_is_none) {
    struct liar final : interceptor {
        std::string says;
        void calling(outgoing_call& call) override { call.attach("amalgam.parent", says); }
    };
    const auto lies = std::make_shared<liar>();
    loop_network net;
    engine server{net.port("server"), counting()};
    engine client{net.port("client"), {.interceptors = {lies}}};
    server.define("f", [] {});
    const peer to = client.lookup(server.address());
    run(net, client, [&] {
        for (const std::string& each :
             {std::string(), std::string("f"), std::string("7"), std::string("7 "),
              std::string("70000 f"), "7 " + std::string(256, 'x')}) {
            lies->says = each;
            client.procedure<void()>("f").on(to)();
        }
    });
    const engine_statistics there = read_statistics(server);
    ASSERT_EQ(there.handlers.size(), 1u);
    EXPECT_EQ(there.handlers[0].path.parent, "");
    EXPECT_EQ(there.handlers[0].ran.num, 6u);
}

TEST(engine_statistics, have_no_more_rows_than_their_bound_and_miss_no_call) {
    loop_network net;
    engine server{net.port("server"), counting({.max_rows = 3})};
    engine client{net.port("client"), counting({.max_rows = 4})};
    server.define_any([](const raw_call& call) { return raw_values{{}, call.values_as()}; });
    const peer to = client.lookup(server.address());
    run(net, client, [&] {
        for (int i = 0; i < 30; ++i)
            client.procedure<void()>("\xff" + std::to_string(i % 10)).on(to)();
    });
    const engine_statistics there = read_statistics(server);
    ASSERT_EQ(there.handlers.size(), 4u);
    EXPECT_EQ(there.handlers[2].ran.num, 3u);
    EXPECT_EQ(there.handlers[3].path, (call_path{"others", 0, {}, {}, 0}));
    EXPECT_EQ(there.handlers[3].ran.num, 21u);
    const engine_statistics here = read_statistics(client);
    ASSERT_EQ(here.calls.size(), 5u);
    EXPECT_EQ(here.calls[4].path.procedure, "others");
    EXPECT_EQ(here.calls[4].took.num, 18u);
    EXPECT_TRUE(nlohmann::json::accept(to_json(there)));
}

TEST(engine_statistics, count_transfers_with_their_bytes_and_the_handler_that_asked) {
    loop_network net;
    engine owner{net.port("owner")};
    engine server{net.port("server"), counting()};
    engine client{net.port("client")};
    std::vector<std::byte> memory(10'000);
    const mutable_bytes whole(memory);
    std::optional<detail::exposure> shown;
    shown.emplace(owner.core(), scatter(&whole, 1), access::read_write);
    const peer there = server.lookup(owner.address());
    const auto move = [&](std::size_t bytes, bool put) {
        std::vector<std::byte> mine(bytes);
        auto* const one = new detail::future_transfer(
            {.core = &server.core(), .there = there, .key = shown->key(0)});
        const mutable_bytes all(mine);
        const const_bytes read(mine);
        put ? one->put_copy(gather(&read, 1)) : one->get_copy(scatter(&all, 1));
        one->launch().get();
    };
    server.define("fetch", [&](std::size_t bytes) { move(bytes, false); }, {.provider = 3});
    const peer to = client.lookup(server.address());
    net.run_until_idle();
    net.delay(5ms);
    run(net, client, [&] {
        const auto fetch = client.procedure<void(std::size_t)>("fetch").on(to, 3);
        fetch(100);
        fetch(700);
    });
    run(net, server, [&] {
        move(50, true);
        EXPECT_THROW(move(20'000, true), error);
    });
    shown.reset();
    const engine_statistics all = read_statistics(server);
    ASSERT_EQ(all.transfers.size(), 2u);
    EXPECT_EQ(all.transfers[0].path, (call_path{"pull", 0, owner.address(), "fetch", 3}));
    expect_like(all.transfers[0].bytes, model_of({100, 700}));
    EXPECT_GE(all.transfers[0].took.min, 5'000'000u);
    EXPECT_EQ(all.transfers[1].path, (call_path{"push", 0, owner.address(), {}, 0}));
    expect_like(all.transfers[1].bytes, model_of({50, 20'000}));
    EXPECT_EQ(all.transfers[1].failures, 1u);
    // Also those of large arguments, under the call that they are of.
    server.define("take", [](const std::vector<std::byte>& bytes) { return bytes.size(); });
    run(net, client, [&] {
        const auto take = client.procedure<std::size_t(std::vector<std::byte>)>("take").on(to);
        EXPECT_EQ(take(std::vector<std::byte>(std::size_t{4} << 20)), std::size_t{4} << 20);
    });
    const engine_statistics more = read_statistics(server);
    ASSERT_EQ(more.transfers.size(), 3u);
    EXPECT_EQ(more.transfers[0].path, (call_path{"pull", 0, client.address(), "take", 0}));
}

TEST(engine_statistics, are_read_after_the_end_and_not_without_the_option) {
    loop_network net;
    std::optional<engine> server(std::in_place, net.port("server"));
    engine client{net.port("client"), counting()};
    server->define("f", [] {});
    const peer to = client.lookup(server->address());
    run(net, client, [&] { client.procedure<void()>("f").on(to)(); });
    const error off = error_of([&] { read_statistics(*server); });
    EXPECT_EQ(off.code(), errc::invalid);
    EXPECT_NE(std::string(off.what()).find("engine_options::statistics"), std::string::npos);
    const engine_statistics before = read_statistics(client);
    client.stop();
    EXPECT_EQ(read_statistics(client), before);
    EXPECT_EQ(before.calls.size(), 1u);
}

TEST(engine_statistics, are_written_at_the_end_and_on_request) {
    const temp_folder folder;
    const std::string own = std::to_string(::getpid());
    const std::string last = folder.with("last." + own + ".json", "of before");
    loop_network net;
    engine server{net.port("server")};
    server.define("f", [] {});
    {
        engine client{net.port("client"), counting({.file = folder.with("last.{pid}.json")})};
        const peer to = client.lookup(server.address());
        run(net, client, [&] { client.procedure<void()>("f").on(to)(); });
        write_statistics(client, folder.with("now.{pid}.json"));
        EXPECT_EQ(content_of(last), "of before");
        run(net, client, [&] { client.procedure<void()>("f").on(to)(); });
        EXPECT_EQ(error_of([&] { write_statistics(server); }).code(), errc::invalid);
    }
    const auto now = nlohmann::json::parse(content_of(folder.with("now." + own + ".json")));
    EXPECT_EQ(now["calls"][0]["took_ns"]["num"], 1);
    const auto end = nlohmann::json::parse(content_of(last));
    EXPECT_EQ(end["calls"][0]["procedure"], "f");
    EXPECT_EQ(end["calls"][0]["peer"], server.address());
    EXPECT_FALSE(end["calls"][0].contains("parent"));
    EXPECT_EQ(end["calls"][0]["took_ns"]["num"], 2);
    EXPECT_TRUE(end["handlers"].empty());
    EXPECT_TRUE(end["transfers"].empty());
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2);
}

TEST(engine_statistics, that_cannot_be_written_are_told_by_a_sentence) {
    const temp_folder folder;
    const std::string taken = folder.with("taken");
    std::filesystem::create_directory(taken);
    std::vector<std::string> lines;
    default_logger().set_sink([&](const log_record& line) { lines.push_back(to_text(line)); });
    {
        loop_network net;
        engine none{net.port("none"), counting({.file = folder.with("none/at.{pid}.json")})};
        engine client{net.port("client"), counting({.file = taken})};
        for (const error& why : {error_of([&] { write_statistics(none); }),
                                 error_of([&] { write_statistics(client); })}) {
            EXPECT_EQ(why.code(), errc::invalid);
            EXPECT_NE(std::string(why.what()).find("cannot write the statistics to \""),
                      std::string::npos);
            EXPECT_NE(std::string(why.what()).find("example: "), std::string::npos);
        }
        EXPECT_TRUE(lines.empty());
    }
    default_logger().set_sink({});
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_NE(lines[0].find(taken + "\" (Is a directory)"), std::string::npos) << lines[0];
    EXPECT_NE(lines[1].find("(No such file or directory)"), std::string::npos) << lines[1];
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(engine_statistics, follow_a_link_and_replace_what_it_leads_to) {
    const temp_folder folder;
    std::filesystem::create_directory(folder.with("far"));
    const std::string target = folder.with("far/target.json", "of before");
    std::filesystem::create_symlink("far/next", folder.with("link"));
    std::filesystem::create_symlink("target.json", folder.with("far/next"));
    std::filesystem::create_symlink(folder.with("far/fresh.json"), folder.with("ahead"));
    std::filesystem::create_symlink("loop", folder.with("loop"));
    loop_network net;
    engine client{net.port("client"), counting()};
    for (const char* const link : {"link", "ahead"})
        write_statistics(client, folder.with(link));
    EXPECT_EQ(error_of([&] { write_statistics(client, folder.with("loop")); }).code(),
              errc::invalid);
    for (const char* const link : {"link", "far/next", "ahead", "loop"})
        EXPECT_TRUE(std::filesystem::is_symlink(folder.with(link))) << link;
    EXPECT_TRUE(nlohmann::json::accept(content_of(target))) << content_of(target);
    EXPECT_TRUE(nlohmann::json::accept(content_of(folder.with("far/fresh.json"))));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.with("far")), {}), 3);
}

TEST(engine_statistics, take_the_place_of_files_only) {
    const temp_folder folder;
    const std::string fifo = folder.with("fifo"), link = folder.with("link");
    ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
    std::filesystem::create_symlink("fifo", link);
    loop_network net;
    engine client{net.port("client"), counting()};
    for (const std::string& each : {fifo, link}) {
        const error why = error_of([&] { write_statistics(client, each); });
        EXPECT_EQ(why.code(), errc::invalid);
        EXPECT_NE(std::string(why.what()).find(each + "\" (it is no regular file), expected"),
                  std::string::npos)
            << why.what();
    }
    EXPECT_TRUE(std::filesystem::is_fifo(fifo));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2);
}

TEST(engine_statistics, follow_no_link_that_a_stranger_laid_in_a_folder_for_all) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can lay a link for another user";
    const temp_folder folder;
    const std::string target = folder.with("target.json", "mine");
    const std::string all = folder.with("all");
    std::filesystem::create_directory(all);
    ASSERT_EQ(::chmod(all.c_str(), 01777), 0);
    std::filesystem::create_symlink(target, all + "/link");
    ASSERT_EQ(::lchown((all + "/link").c_str(), 12345, 12345), 0);
    loop_network net;
    engine client{net.port("client"), counting()};
    const error why = error_of([&] { write_statistics(client, all + "/link"); });
    EXPECT_NE(std::string(why.what()).find("(Permission denied)"), std::string::npos) << why.what();
    EXPECT_EQ(content_of(target), "mine");
}

TEST(engine_statistics, of_two_engines_have_a_file_each_by_their_names) {
    const temp_folder folder;
    const std::string pattern = folder.with("{name}.{pid}.json");
    const std::string own = "." + std::to_string(::getpid()) + ".json";
    {
        loop_network net;
        std::vector<std::unique_ptr<engine>> all;
        for (const char* const name : {"bank", "till/2", ""}) {
            engine_options options = counting({.file = pattern});
            if (*name != '\0') options.name = name;
            all.push_back(
                std::make_unique<engine>(net.port(std::to_string(all.size())), std::move(options)));
        }
    }
    for (const char* const name : {"bank", "till_2", "amalgam"})
        EXPECT_TRUE(nlohmann::json::accept(content_of(folder.with(name + own)))) << name;
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 3);
}

TEST(engine_statistics, leave_the_calling_handler_out_where_a_call_has_no_room_for_it) {
    struct filler final : interceptor {
        std::size_t leaves = 0;
        void calling(outgoing_call& call) override {
            const std::size_t heads = 8 + 8 + 2 + 4;  // Of the extras, of this one, of its key.
            call.attach("fill",
                        std::string(detail::limits::max_extras_bytes - heads - leaves, 'x'));
        }
    };
    const auto fills = std::make_shared<filler>();
    engine_options options = counting();
    options.interceptors = {fills};
    loop_network net;
    engine last{net.port("last"), counting()};
    engine middle{net.port("middle"), std::move(options)};
    engine client{net.port("client")};
    last.define("inner", [](std::string_view) {});
    const auto inner =
        middle.procedure<void(std::string_view)>("inner").on(middle.lookup(last.address()));
    constexpr std::size_t of_key = 8 + (remote_key::wire_bytes + 7) / 8 * 8;
    const std::string large(3'000'000, 'x');
    middle.define("outer", [&] {
        inner("");
        inner.post("");
        fills->leaves = of_key;
        inner(large);
    });
    middle.define("roomy", [&] {
        fills->leaves = 1000;
        inner("");
        inner.post("");
    });
    const peer to = client.lookup(middle.address());
    run(net, client, [&] {
        client.procedure<void()>("outer").on(to)();
        client.procedure<void()>("roomy").on(to)();
    });
    const auto rows = read_statistics(last).handlers;
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[0].path.parent, "");
    EXPECT_EQ(rows[0].ran.num, 3u);
    EXPECT_EQ(rows[1].path.parent, "roomy");
    EXPECT_EQ(rows[1].ran.num, 2u);
}

TEST(engine_statistics, are_asked_for_by_a_config) {
    const auto read = parse_engine_config(
        R"({"endpoints": "loop://x", "statistics": {"file": "a.{host}.json", "max_rows": 7}})");
    ASSERT_TRUE(read) << read.sentence();
    EXPECT_EQ(read->options.statistics,
              (statistics_options{.file = "a.{host}.json", .max_rows = 7}));
    const auto again = parse_engine_config(to_json(*read));
    ASSERT_TRUE(again) << again.sentence();
    EXPECT_EQ(again->options.statistics, read->options.statistics);
    const auto off = parse_engine_config(R"({"endpoints": "loop://x"})");
    EXPECT_FALSE(off->options.statistics);
    EXPECT_EQ(to_json(*off).find("statistics"), std::string::npos);
    const auto on = parse_engine_config(R"({"endpoints": "loop://x", "statistics": {}})");
    EXPECT_EQ(on->options.statistics, statistics_options{});
    for (const char* const wrong : {R"({"max_rows": 0})", R"({"files": "x"})", "true"}) {
        const auto refused = parse_engine_config(R"({"endpoints": "loop://x", "statistics": )" +
                                                 std::string(wrong) + "}");
        EXPECT_EQ(refused.code(), errc::invalid) << wrong;
        EXPECT_NE(refused.sentence().find(", expected "), std::string::npos) << refused.sentence();
    }
}

}  // namespace
}  // namespace amalgam
