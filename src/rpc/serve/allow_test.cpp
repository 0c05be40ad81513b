#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/engine_config.hpp>
#include <amalgam/rpc/interceptor.hpp>
#include <amalgam/rpc/raw_call.hpp>

#include "fabric/trust/tls/tls_testing.hpp"
#include "rpc/loop_pair.hpp"

// Who calls, and who may.
namespace amalgam {
namespace {

std::uint32_t somebody_else() {
    return ::geteuid() + 1;
}

const allow_list only_me{.uids = {::geteuid()}};
const allow_list only_others{.names = {"node7"}, .uids = {somebody_else()}};

identity of_certificate(std::string name, std::vector<std::string> groups = {}) {
    identity who;
    who.kind = identity_kind::certificate;
    who.name = std::move(name);
    who.groups = std::move(groups);
    return who;
}

TEST(allow_list, fits_names_and_groups_of_who_proved_them_and_uids_of_processes) {
    const allow_list list{.names = {"node7"}, .groups = {"operators"}, .uids = {7}};
    EXPECT_TRUE(list.allows(of_certificate("node7")));
    EXPECT_TRUE(list.allows(of_certificate("node8", {"users", "operators"})));
    EXPECT_FALSE(list.allows(of_certificate("node8", {"users"})));
    EXPECT_FALSE(list.allows(of_certificate("Node7")));
    EXPECT_FALSE(list.allows(of_certificate("operators", {"node7"})));
    identity shared = of_certificate("node7");
    shared.kind = identity_kind::pre_shared;
    EXPECT_TRUE(list.allows(shared));
    identity unproved = of_certificate("node7", {"operators"});
    unproved.kind = identity_kind::none;
    unproved.uid = 7;
    EXPECT_FALSE(list.allows(unproved));
    identity process;
    process.kind = identity_kind::process;
    process.uid = 7;
    EXPECT_TRUE(list.allows(process));
    process.uid = 8;
    process.name = "node7";
    EXPECT_FALSE(list.allows(process));
    identity certified = of_certificate("node9");
    certified.uid = 7;
    EXPECT_FALSE(list.allows(certified)) << "its uid is not the kernel's word";
    EXPECT_FALSE(allow_list{}.allows(of_certificate("")));
}

/// A server with those options, and a client on the same transport.
struct allowing : testing::Test {
    explicit allowing(const char* uri = "shm://") : where(uri) {}

    error refused(const peer& there, std::string_view name = "who") {
        return error_of([&] { client.procedure<std::string()>(name).on(there)(); });
    }
    void define(engine& server, std::string_view name = "who", procedure_options how = {}) {
        server.define(
            name,
            [this] {
                ++ran;
                return to_text(call_context::current().who());
            },
            how);
    }
    std::string me() { return to_text(own_process()); }

    const char* where;
    engine client{where};
    std::atomic<int> ran{0};
};

TEST_F(allowing, a_handler_learns_who_calls_by_the_kernels_word) {
    engine server{where};
    define(server);
    const peer there = client.lookup(server.address());
    const auto who = client.procedure<std::string()>("who");
    EXPECT_EQ(who.on(there)(), me());
    EXPECT_EQ(there.who(), own_process()) << "the client knows the server, too";
    EXPECT_EQ(peer{}.who(), identity{});
    engine over_tcp{"tcp://127.0.0.1:0"}, tcp_client{"tcp://"};
    define(over_tcp);
    const peer far = tcp_client.lookup(over_tcp.address());
    EXPECT_EQ(tcp_client.procedure<std::string()>("who").on(far)(), "nobody known");
    EXPECT_EQ(server.procedure<std::string()>("who").on(server.lookup(server.address()))(), me())
        << "a call to itself";
}

TEST_F(allowing, who_is_not_allowed_gets_denied_and_no_handler_runs) {
    engine server{where, {.allow = only_others}};
    define(server);
    const peer there = client.lookup(server.address());
    const error why = refused(there);
    EXPECT_EQ(why.code(), errc::denied);
    EXPECT_NE(std::string(why.what()).find("does not allow this call to " + me()),
              std::string::npos)
        << why.what();
    const std::string address = server.address();
    EXPECT_EQ(code_of([&] { client.lookup({address, address}); }), errc::denied);
    // Whether there is such a procedure, and of which types, is not told either.
    EXPECT_EQ(refused(there, "nothing").code(), errc::denied);
    EXPECT_EQ(refused(there, "amalgam.ping").code(), errc::denied);
    EXPECT_EQ(counters_of(server)["rpc.denied"], 4u);
    client.procedure<void()>("who").on(there).post();
    while (counters_of(server)["rpc.denied"] < 5)
        std::this_thread::yield();
    EXPECT_EQ(ran, 0);
    EXPECT_EQ(counters_of(server)["rpc.served"], 0u);
    EXPECT_EQ(server.procedure<std::string()>("who").on(server.lookup(server.address()))(), me())
        << "the engine itself always may";
}

TEST_F(allowing, who_proved_nothing_is_not_allowed_where_anybody_is_asked_for) {
    engine server{"tcp://127.0.0.1:0", {.allow = only_me}}, stranger{"tcp://"};
    define(server);
    const error why = error_of(
        [&] { stranger.procedure<std::string()>("who").on(stranger.lookup(server.address()))(); });
    EXPECT_EQ(why.code(), errc::denied);
    EXPECT_NE(std::string(why.what()).find("does not know who calls"), std::string::npos)
        << why.what();
    EXPECT_EQ(ran, 0);
}

TEST_F(allowing, names_and_groups_of_certificates_count_over_tls) {
    const detail::test_lab lab;
    const auto options = [&](const char* name, std::optional<allow_list> allow = {}) {
        const auto node = lab.authority.issue({.name = name});
        return engine_options{.ports = {.trust = lab.trust_of(node)}, .allow = std::move(allow)};
    };
    engine server{"tcp+tls://127.0.0.1:0", options("server", allow_list{.names = {"node7"}})};
    define(server);
    engine seven{"tcp+tls://", options("node7")}, eight{"tcp+tls://", options("node8")};
    const auto ask = [&](engine& by) {
        return by.procedure<std::string()>("who").on(by.lookup(server.address()));
    };
    EXPECT_EQ(ask(seven)(), "node7");
    EXPECT_EQ(seven.lookup(server.address()).who().name, "server");
    const error why = error_of([&] { ask(eight)(); });
    EXPECT_EQ(why.code(), errc::denied);
    EXPECT_NE(std::string(why.what()).find("call to node8"), std::string::npos) << why.what();
    EXPECT_EQ(ran, 1);
}

TEST_F(allowing, who_is_refused_for_want_of_trust_is_denied_however_late_he_calls) {
    const detail::test_lab lab, elsewhere;
    engine server{"tcp+tls://127.0.0.1:0", {.ports = {.trust = lab.trust}}};
    engine stranger{"tcp+tls://", {.ports = {.trust = elsewhere.trust}}};
    define(server);
    event lost;
    const auto told = stranger.on_peer_lost([&](const peer&, status) { lost.set(); });
    const peer there = stranger.lookup(server.address());
    lost.wait();
    const auto call = stranger.procedure<std::string()>("who").on(there);
    const auto post = stranger.procedure<void()>("nothing").on(there);
    for (const error& why : {error_of([&] { call(); }), error_of([&] { post.post(); })}) {
        EXPECT_EQ(why.code(), errc::denied) << why.what();
        EXPECT_NE(std::string(why.what()).find("for want of trust"), std::string::npos)
            << why.what();
    }
    EXPECT_EQ(ran, 0);
}

/// Asks who calls, of every call.
struct doorkeeper : interceptor {
    explicit doorkeeper(allow_list list) : lets_in(std::move(list)) {}
    void serving(call_context& call) override {
        const identity who = call.who();
        if (!lets_in.allows(who))
            throw error(errc::denied, "no " + std::string(call.procedure()) + " for " +
                                          (who.name.empty() ? to_text(who) : who.name));
    }
    const allow_list lets_in;
};

TEST_F(allowing, an_interceptor_decides_by_who_calls_before_the_handler_runs) {
    const detail::test_lab lab;
    const auto options = [&](const char* name, std::vector<std::shared_ptr<interceptor>> asks) {
        const auto node = lab.authority.issue({.name = name});
        return engine_options{.ports = {.trust = lab.trust_of(node)},
                              .interceptors = std::move(asks)};
    };
    engine server{
        "tcp+tls://127.0.0.1:0",
        options("server", {std::make_shared<doorkeeper>(allow_list{.names = {"node7"}})})};
    define(server);
    define(server, "inline", {.run = handler::inline_});
    engine seven{"tcp+tls://", options("node7", {})}, eight{"tcp+tls://", options("node8", {})};
    const auto ask = [&](engine& by, const std::string& name) {
        return by.procedure<std::string()>(name).on(by.lookup(server.address()))();
    };
    for (const std::string name : {"who", "inline"}) {
        EXPECT_EQ(ask(seven, name), "node7");
        const error why = error_of([&] { ask(eight, name); });
        EXPECT_EQ(why.code(), errc::denied);
        EXPECT_NE(std::string(why.what()).find("no " + name + " for node8"), std::string::npos)
            << why.what();
    }
    EXPECT_EQ(ran, 2);

    engine by_user{where, {.interceptors = {std::make_shared<doorkeeper>(only_me)}}};
    engine by_others{where, {.interceptors = {std::make_shared<doorkeeper>(only_others)}}};
    define(by_user);
    define(by_others);
    EXPECT_EQ(client.procedure<std::string()>("who").on(client.lookup(by_user.address()))(), me());
    const error why = refused(client.lookup(by_others.address()));
    EXPECT_EQ(why.code(), errc::denied);
    EXPECT_NE(std::string(why.what()).find("no who for " + me()), std::string::npos) << why.what();
    EXPECT_EQ(ran, 3);
}

TEST_F(allowing, a_procedures_own_list_goes_before_the_engines) {
    engine server{where,
                  {.allow = only_others,
                   .allow_for = {{"by name", only_me}, {"own", only_others}, {"by name", {}}}}};
    define(server, "open", {.allow = only_me});
    define(server, "own", {.allow = only_me});
    define(server, "by name");
    define(server, "closed");
    engine free{where};
    define(free, "closed", {.run = handler::inline_, .allow = allow_list{}});
    define(free, "open");
    const peer there = client.lookup(server.address()), at_free = client.lookup(free.address());
    for (const char* each : {"open", "own", "by name"}) {
        const auto who = client.procedure<std::string()>(each).on(there);
        for (int i = 0; i < 3; ++i)
            EXPECT_EQ(who(), me()) << each;
    }
    EXPECT_EQ(refused(there, "closed").code(), errc::denied);
    for (int i = 0; i < 3; ++i)
        EXPECT_EQ(refused(at_free, "closed").code(), errc::denied);
    EXPECT_EQ(client.procedure<std::string()>("open").on(at_free)(), me());
    EXPECT_EQ(ran, 10);
}

TEST_F(allowing, holds_for_names_that_nobody_defined) {
    engine behind{where}, server{where, {.allow_for = {{"secret", only_others}}}};
    for (const char* each : {"other", "secret"})
        behind.define(each, [] { return std::string("any"); });
    const peer next = server.lookup(behind.address());
    server.define_any([&](const raw_call& call) {
        ++ran;
        return call.forward(next);
    });
    const peer there = client.lookup(server.address());
    EXPECT_EQ(client.procedure<std::string()>("other").on(there)(), "any");
    for (int i = 0; i < 3; ++i)
        EXPECT_EQ(refused(there, "secret").code(), errc::denied);
    EXPECT_EQ(ran, 1);
}

TEST_F(allowing, is_read_from_json_and_written_again) {
    const auto config = parse_engine_config(
        R"({"endpoints": "shm://",
            "allow": {"names": ["a", "b"], "groups": ["ops"], "uids": [0, 4294967295]},
            "allow_for": {"x": {"names": []}, "y": {"uids": [7]}}})",
        "e.json");
    ASSERT_TRUE(config.ok()) << config.sentence();
    const engine_options& options = config->options;
    EXPECT_EQ(options.allow,
              (allow_list{.names = {"a", "b"}, .groups = {"ops"}, .uids = {0, 4294967295}}));
    ASSERT_EQ(options.allow_for.size(), 2u);
    EXPECT_EQ(options.allow_for[0], std::pair(std::string("x"), allow_list{}));
    EXPECT_EQ(options.allow_for[1], std::pair(std::string("y"), allow_list{.uids = {7}}));
    const auto again = parse_engine_config(to_json(*config), "again");
    ASSERT_TRUE(again.ok()) << again.sentence();
    EXPECT_EQ(again->options.allow, options.allow);
    EXPECT_EQ(again->options.allow_for, options.allow_for);
    const auto open = parse_engine_config(R"({"endpoints": "shm://"})", "open");
    EXPECT_EQ(parse_engine_config(to_json(*open), "open")->options.allow, std::nullopt);
}

}  // namespace
}  // namespace amalgam
