#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/interceptor.hpp>

#include "rpc/loop_pair.hpp"

// Interceptors, traces and metadata, on the deterministic network.

namespace amalgam {
namespace {

using namespace std::chrono_literals;

struct watcher : interceptor {
    std::vector<std::string> seen;
    std::string tag;
    bool refuses_outgoing = false;
    bool refuses_incoming = false;

    void calling(outgoing_call& call) override {
        if (refuses_outgoing) throw error(errc::denied, "not from here");
        if (!tag.empty()) call.attach("user", tag);
        seen.push_back("calling " + std::string(call.procedure()));
    }
    void called(std::string_view procedure, const peer&, status how,
                clock::duration took) noexcept override {
        EXPECT_GE(took, clock::duration::zero());
        seen.push_back("called " + std::string(procedure) + " " + std::string(name(how.code)));
    }
    void serving(call_context& call) override {
        if (refuses_incoming) throw error(errc::denied, "you may not");
        seen.push_back("serving " + std::string(call.procedure()) + " for " +
                       std::string(call.metadata("user").value_or("nobody")));
    }
    void served(call_context& call, status how, clock::duration) noexcept override {
        seen.push_back("served " + std::string(call.procedure()) + " " +
                       std::string(name(how.code)));
    }
};

TEST(interceptors, see_every_call_on_both_sides) {
    loop_network net;
    auto there = std::make_shared<watcher>();
    auto here = std::make_shared<watcher>();
    auto outer = std::make_shared<watcher>();
    here->tag = "ann";
    engine server{net.port("server"), {.interceptors = {there}}};
    engine client{net.port("client"), {.interceptors = {outer, here}}};
    server.define("f", [](int n) {
        if (n == 0) throw std::runtime_error("zero");
    });
    auto done = client.spawn([&] {
        auto f = client.procedure<void(int)>("f").on(server.address());
        f(1);
        EXPECT_EQ(f.try_call(0).code(), errc::handler_failed);
        f.post(2);
        this_task::sleep_for(1ms);
        there->refuses_incoming = true;
        const result<void> refused = f.try_call(3);
        EXPECT_EQ(refused.code(), errc::denied);
        EXPECT_NE(refused.sentence().find("you may not"), std::string::npos);
        here->refuses_outgoing = true;
        EXPECT_EQ(f.try_call(4).code(), errc::denied);
        EXPECT_EQ(error_of([&] { f.post(5); }).code(), errc::denied);
    });
    net.run_until_idle();
    done.get();
    EXPECT_EQ(here->seen, (std::vector<std::string>{"calling f", "called f ok", "calling f",
                                                    "called f handler_failed", "calling f",
                                                    "calling f", "called f denied"}));
    EXPECT_EQ(outer->seen.back(), "calling f");
    EXPECT_EQ(outer->seen.at(outer->seen.size() - 2), "called f denied");
    EXPECT_EQ(there->seen, (std::vector<std::string>{"serving f for ann", "served f ok",
                                                     "serving f for ann", "served f handler_failed",
                                                     "serving f for ann", "served f ok"}));
}

TEST(interceptors, of_several_run_in_order_before_a_call_and_in_reverse_after_it) {
    std::string seen;
    struct numbered : interceptor {
        numbered(std::string& log, std::string number) : into(log), name(std::move(number)) {}
        void calling(outgoing_call&) override { into += "calling" + name + ' '; }
        void called(std::string_view, const peer&, status, clock::duration) override {
            into += "called" + name + ' ';
        }
        void serving(call_context&) override { into += "serving" + name + ' '; }
        void served(call_context&, status, clock::duration) override {
            into += "served" + name + ' ';
        }
        std::string& into;
        std::string name;
    };
    const std::vector<std::shared_ptr<interceptor>> both{std::make_shared<numbered>(seen, "1"),
                                                         std::make_shared<numbered>(seen, "2")};
    loop_network net;
    engine server{net.port("server"), {.interceptors = both}};
    engine client{net.port("client"), {.interceptors = both}};
    server.define("f", [&] { seen += "f "; });
    const auto f = client.procedure<void()>("f").on(server.address());
    const std::string until_served = "calling1 calling2 serving1 serving2 f served2 served1 ";
    const auto call = f.start();
    net.run_until_idle();
    EXPECT_EQ(std::exchange(seen, {}), until_served + "called2 called1 ");
    f.post();  // Nobody learns how a one-way call ended.
    net.run_until_idle();
    EXPECT_EQ(seen, until_served);
}

TEST(interceptors, what_is_attached_to_a_call_takes_64_KiB_at_most) {
    struct attaching : interceptor {
        void calling(outgoing_call& call) override {
            for (const std::size_t each : bytes)
                call.attach(std::to_string(each), std::string(each, 'x'));
        }
        std::vector<std::size_t> bytes;
    };
    const auto attaches = std::make_shared<attaching>();
    loop_network net;
    engine server{net.port("server")};
    engine client{net.port("client"), {.interceptors = {attaches}}};
    std::size_t came = 0;
    server.define("f", [&] {
        for (const std::size_t each : attaches->bytes)
            came += call_context::current().metadata(std::to_string(each)).value_or("").size();
    });
    const auto f = client.procedure<void()>("f").on(server.address());
    const auto code_with = [&](std::vector<std::size_t> bytes) {
        attaches->bytes = std::move(bytes);
        auto done = client.spawn([&] { return f.try_call().code(); });
        net.run_until_idle();
        return done.get();
    };
    EXPECT_EQ(code_with({30'000, 35'000}), errc::ok);
    EXPECT_EQ(came, 65'000u);
    EXPECT_EQ(code_with({30'000, 36'000}), errc::too_large);
    EXPECT_EQ(code_with({65'536}), errc::too_large);
    attaches->bytes = {65'536};
    EXPECT_EQ(error_of([&] { f.post(); }).code(), errc::too_large);
    net.run_until_idle();
    EXPECT_EQ(came, 65'000u) << "refused calls have run";
}

TEST(interceptors, a_refusal_by_no_known_code_ends_the_call_as_handler_failed) {
    struct odd : interceptor {
        void serving(call_context&) override { throw error(static_cast<errc>(200), "odd"); }
    };
    loop_network net;
    engine server{net.port("server"), {.interceptors = {std::make_shared<odd>()}}};
    engine client{net.port("client")};
    server.define("f", [] {});
    future<void> call = client.procedure<void()>("f").on(server.address()).start();
    net.run_until_idle();
    ASSERT_TRUE(call.ready());
    const status how = call.wait();
    EXPECT_EQ(how, errc::handler_failed);
    EXPECT_EQ(how.handler_code(), static_cast<errc>(200));
}

TEST(trace, goes_with_a_call_and_those_that_its_handler_makes) {
    loop_network net;
    engine back{net.port("back")}, front{net.port("front")}, client{net.port("client")};
    std::vector<trace_context> seen;
    back.define("deep", [&] {
        ASSERT_NE(call_context::current().trace(), nullptr);
        seen.push_back(*call_context::current().trace());
    });
    front.define("ask", [&] {
        ASSERT_NE(call_context::current().trace(), nullptr);
        seen.push_back(*call_context::current().trace());
        front.procedure<void()>("deep").on(back.address())();
    });
    front.define("plain", [] { EXPECT_EQ(call_context::current().trace(), nullptr); });
    const trace_context root = trace_context::start();
    auto done = client.spawn([&] {
        client.procedure<void()>("ask").on(front.address()).traced(root)();
        client.procedure<void()>("plain").on(front.address())();
    });
    net.run_until_idle();
    done.get();
    ASSERT_EQ(seen.size(), 2u);
    EXPECT_EQ(seen[0], root);
    EXPECT_EQ(seen[1].trace_id, root.trace_id);
    EXPECT_NE(seen[1].span_id, root.span_id);
    EXPECT_TRUE(seen[1].sampled);
}

TEST(trace, is_spelled_as_the_w3c_does) {
    const std::string text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const auto read = trace_context::parse(text);
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->traceparent(), text);
    EXPECT_TRUE(read->sampled);
    EXPECT_TRUE(trace_context::parse("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x"));
    for (const char* wrong : {"", "00", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
                              "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
                              "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                              "00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                              "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                              "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
                              "00-4bf92f3577b34da6a3ce929d0e0e4736x00f067aa0ba902b7-01"}) {
        EXPECT_FALSE(trace_context::parse(wrong)) << wrong;
    }
    EXPECT_NE(trace_context::start(), trace_context::start());
}

}  // namespace
}  // namespace amalgam
