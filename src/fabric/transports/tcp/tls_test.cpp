// A port with TLS, its peers, and those who must not become one.
#include <algorithm>

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/log.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/fabric/temporary_key.hpp>

#include "fabric/sealing/crowd_testing.hpp"
#include "fabric/transports/tcp/handshake.hpp"
#include "fabric/transports/tcp/test_port.hpp"
#include "fabric/transports/tcp/tls_raw_peer.hpp"
#include "fabric/trust/credentials/credential_store.hpp"
#include "fabric/trust/credentials/silent_folder_testing.hpp"
#include "temp_folder.hpp"

namespace amalgam::detail {
namespace {

using namespace std::chrono_literals;
using step = tls_session::state;

constexpr const char* local = "tcp+tls://127.0.0.1:0";

/// Allows this process so many, until the end of the test.
class descriptors {
public:
    explicit descriptors(std::size_t count) {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        rlimit raised = before_;
        raised.rlim_cur = std::max<rlim_t>(before_.rlim_cur, count);
        enough_ = raised.rlim_cur <= before_.rlim_max && ::setrlimit(RLIMIT_NOFILE, &raised) == 0;
    }
    descriptors(const descriptors&) = delete;
    ~descriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
    explicit operator bool() const noexcept { return enough_; }

private:
    rlimit before_{};
    bool enough_ = false;
};

class tls : public testing::Test {
protected:
    port_options with(port_options options = {}) const {
        options.trust = lab_.trust;
        return options;
    }
    port_options with_trust(std::shared_ptr<const credentials> trust) const {
        port_options options;
        options.trust = std::move(trust);
        return options;
    }
    /// Status of the first operation to `address`. `others` make progress, too.
    static status fate_of(tcp_test_port& here, const std::string& address,
                          std::initializer_list<tcp_test_port*> others = {}) {
        tcp_test_port::operation op;
        EXPECT_EQ(here.post(here.look_up(address), 1, "x", op), posted::pending);
        while (!op.over) {
            here.end->progress();
            for (tcp_test_port* each : others)
                each->end->progress();
        }
        return {op.code};
    }
    /// Steps of both until the raw peer's handshake has ended.
    static step settle(tls_raw_peer& raw, tcp_test_port& here) {
        step now = step::waiting;
        while (now == step::waiting) {
            here.end->progress();
            now = raw.try_step();
        }
        return now;
    }
    /// Whether the port has ended the connection; makes progress until it has, or it answers.
    static bool is_refused(tls_raw_peer& raw, tcp_test_port& here) {
        if (settle(raw, here) == step::failed) return true;
        raw.send(encoded_hello({.incarnation = 1}).bytes());
        char byte;
        const iovec into{&byte, 1};
        for (;;) {
            here.end->progress();
            const ssize_t got = raw.session().read({&into, 1}, false);
            if (got > 0) return false;
            if (got == 0 || errno != EAGAIN) return true;
        }
    }
    static std::uint64_t refused(tcp_test_port& at) {
        const std::string told = at.end->explain();
        const std::size_t end = told.find(" handshakes refused");
        return std::stoull(told.substr(told.rfind(' ', end - 1) + 1));
    }
    void expect_served(tcp_test_port& server) {
        tcp_test_port good("tcp+tls://", with());
        connect(good, server);
        EXPECT_TRUE(good.lost.empty());
    }

    test_lab lab_;
};

TEST_F(tls, a_ticket_does_not_wait_for_a_hello_that_comes_late) {
    tcp_test_port server(local, with());
    const ssl_context_ptr context = bare_context(lab_.authority, &lab_.node);
    tls_raw_peer raw(server.end->address(), *context);
    ASSERT_EQ(settle(raw, server), step::complete);
    char byte;
    const iovec into{&byte, 1};
    while (!raw.session().ticket()) {
        server.end->progress();
        ASSERT_LT(raw.session().read({&into, 1}, false), 0);
        ASSERT_EQ(errno, EAGAIN);
    }
}

TEST_F(tls, messages_of_any_size_arrive_in_order) {
    tcp_test_port here(local, with()), there(local, with());
    const auto [to, back] = connect(here, there);
    for (std::size_t bytes : {0u, 1u, 300u, 5000u, 16'384u, 100'000u, 10'000'000u}) {
        tcp_test_port::operation op;
        std::string text(bytes, 'g');
        for (std::size_t i = 0; i < bytes; ++i)
            text[i] = static_cast<char>(i * 3 + (i >> 12));
        const posted how = here.post(to, bytes, text, op);
        move_until({&here, &there},
                   [&] { return !there.arrived.empty() && (op.over || how == posted::done); });
        EXPECT_TRUE(there.arrived.front().text == text) << bytes;
        there.arrived.clear();
    }
}

TEST_F(tls, many_small_messages_arrive_in_order_both_ways) {
    tcp_test_port here(local, with()), there(local, with());
    const auto [to, back] = connect(here, there);
    constexpr std::size_t count = 20'000;
    std::size_t sent = 0, returned = 0;
    while (there.arrived.size() < count || here.arrived.size() < count) {
        for (int i = 0; i < 50; ++i) {
            if (sent < count && here.send(to, sent, "there")) ++sent;
            if (returned < count && there.send(back, returned, "back")) ++returned;
        }
        here.end->progress();
        there.end->progress();
    }
    for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(there.arrived[i].tag, i);
        ASSERT_EQ(here.arrived[i].tag, i);
    }
}

// ---- opening

TEST_F(tls, a_port_without_credentials_is_refused_with_a_sentence) {
    const auto opened = make_tcp_transport()->open(uri::parse(local), {});
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.code(), errc::invalid);
    EXPECT_NE(opened.sentence().find("needs credentials"), std::string::npos);
    EXPECT_NE(opened.sentence().find("?credentials=FOLDER"), std::string::npos);
}

TEST_F(tls, credentials_are_read_from_the_folder_that_the_uri_names_and_peers_never_see_it) {
    const temp_folder folder;
    lab_.authority.write_folder(folder.with("node"), lab_.node);
    const std::string where = std::string(local) + "?credentials=" + folder.with("node");
    tcp_test_port here(where), there(where);
    EXPECT_EQ(here.end->address().find('?'), std::string::npos);
    EXPECT_TRUE(here.end->address().starts_with("tcp+tls://127.0.0.1:"));
    const auto [to, back] = connect(here, there);
    EXPECT_TRUE(there.end->peer_address(back).starts_with("tcp+tls://127.0.0.1:"));
    EXPECT_NE(here.end->explain().find("encrypted by TLS 1.3"), std::string::npos);
}

TEST_F(tls, a_caller_may_use_one_uri_for_its_port_and_for_its_peer) {
    const temp_folder folder;
    lab_.authority.write_folder(folder.with("node"), lab_.node);
    tcp_test_port server(local, with());
    const std::string given = server.end->address() + "?credentials=" + folder.with("node");
    tcp_test_port caller(client_uri(uri::parse(given)));
    EXPECT_EQ(fate_of(caller, given, {&server}).code, errc::ok);
    EXPECT_EQ(caller.look_up(given), caller.look_up(server.end->address()));
    for (tcp_test_port* each : {&caller, &server}) {
        const auto other = each->end->lookup(server.end->address() + "?credentials=other");
        EXPECT_EQ(other.code(), errc::invalid);
        EXPECT_NE(other.sentence().find("leave the option out"), std::string::npos)
            << other.sentence();
    }
    EXPECT_EQ(caller.end->lookup(server.end->address() + "?credentials=a&b=c").code(),
              errc::invalid);
}

TEST_F(tls, processes_that_know_each_others_temporary_keys_let_in_one_another_and_nobody_else) {
    const temporary_key left("left"), right("right"), stranger("stranger");
    const std::vector<key_fingerprint> both{left.fingerprint(), right.fingerprint()};
    tcp_test_port here(local, with_trust(left.trusting(both)));
    tcp_test_port there(local, with_trust(right.trusting(both)));
    const auto [to, back] = connect(here, there);
    // Nobody vouches for the names in their certificates.
    EXPECT_EQ(here.end->who(to).name, to_text(right.fingerprint()));
    EXPECT_EQ(there.end->who(back).name, to_text(left.fingerprint()));
    EXPECT_EQ(here.end->self().key, left.fingerprint());
    EXPECT_EQ(tcp_test_port("tcp://").end->self(), identity{});
    // One who trusts them is not trusted for that.
    tcp_test_port outside("tcp+tls://", with_trust(stranger.trusting(both)));
    EXPECT_EQ(fate_of(outside, there.end->address(), {&there}).code, errc::denied);
    // Nor is another key of the same name.
    const temporary_key other("left");
    tcp_test_port same_name("tcp+tls://", with_trust(other.trusting(both)));
    EXPECT_EQ(fate_of(same_name, there.end->address(), {&there}).code, errc::denied);
    EXPECT_EQ(there.arrived.size(), 0u);
}

TEST_F(tls, options_that_make_no_sense_are_refused_with_a_sentence) {
    for (const char* wrong :
         {"tcp+tls://127.0.0.1:0?credentials=/nowhere/at/all", "tcp://127.0.0.1:0?credentials=x",
          "tcp+tls://127.0.0.1:0?ciphers=weak", "tcp+tls://127.0.0.1:0?credentials="}) {
        const auto opened = make_tcp_transport()->open(uri::parse(wrong), with());
        ASSERT_FALSE(opened) << wrong;
        EXPECT_TRUE(opened.sentence().starts_with("uri \"tcp")) << opened.sentence();
    }
}

TEST_F(tls, a_port_reaches_only_addresses_of_its_own_kind) {
    tcp_test_port sealed(local, with()), plain("tcp://127.0.0.1:0", with());
    EXPECT_EQ(sealed.end->lookup(plain.end->address()).code(), errc::invalid);
    EXPECT_EQ(plain.end->lookup(sealed.end->address()).code(), errc::invalid);
}

// ---- who is refused

TEST_F(tls, a_caller_of_another_authority_is_denied_and_counted) {
    tcp_test_port server(local, with());
    const test_lab other;
    tcp_test_port caller("tcp+tls://", with_trust(other.trust));
    EXPECT_EQ(fate_of(caller, server.end->address(), {&server}).code, errc::denied);
    move_until({&server}, [&] { return refused(server) == 1; });
    expect_served(server);
}

TEST_F(tls, credentials_in_the_uri_are_in_place_of_those_of_the_options) {
    const temp_folder folder;
    const test_lab other;
    other.authority.write_folder(folder.with("node"), other.node);
    tcp_test_port server(local, with());
    tcp_test_port by_options("tcp+tls://", with());
    tcp_test_port by_uri("tcp+tls://?credentials=" + folder.with("node"), with());
    EXPECT_EQ(fate_of(by_options, server.end->address(), {&server}).code, errc::ok);
    EXPECT_EQ(fate_of(by_uri, server.end->address(), {&server}).code, errc::denied);
    // A lookup may say that it means those of the options, which have no name.
    EXPECT_TRUE(by_options.end->lookup(server.end->address() + "?credentials="));
    EXPECT_FALSE(by_uri.end->lookup(server.end->address() + "?credentials="));
}

TEST_F(tls, a_caller_whom_the_server_does_not_trust_is_told_so) {
    tcp_test_port server(local, with());
    const test_lab other;  // Trusts our authority, but has a certificate of another.
    tcp_test_port caller(
        "tcp+tls://",
        with_trust(credentials::from_text({.certificate = pem_of(other.node.made.get()),
                                           .key = pem_of(other.node.key.get()),
                                           .authority = pem_of(lab_.authority.certificate())})));
    EXPECT_EQ(fate_of(caller, server.end->address(), {&server}).code, errc::denied);
    expect_served(server);
}

TEST_F(tls, callers_with_wrong_certificates_get_no_answer) {
    tcp_test_port server(local, with());
    const test_certificate expired = lab_.authority.issue({.starts = -100, .ends = -10});
    const test_certificate early = lab_.authority.issue({.starts = 100, .ends = 1000});
    const test_authority another;
    const test_certificate foreign = another.issue();
    const test_certificate* const all[] = {nullptr, &expired, &early, &foreign};
    std::uint64_t count = 0;
    for (const test_certificate* each : all) {
        const ssl_context_ptr context = bare_context(lab_.authority, each);
        tls_raw_peer raw(server.end->address(), *context);
        EXPECT_TRUE(is_refused(raw, server)) << count;
        EXPECT_FALSE(raw.session().why().sentence.empty());
        EXPECT_EQ(refused(server), ++count);
    }
    const ssl_context_ptr right = bare_context(lab_.authority, &lab_.node);
    tls_raw_peer raw(server.end->address(), *right);
    EXPECT_FALSE(is_refused(raw, server));
    EXPECT_TRUE(server.lost.empty());
}

TEST_F(tls, callers_of_an_older_tls_or_another_protocol_get_no_answer) {
    tcp_test_port server(local, with());
    const ssl_context_ptr older = bare_context(lab_.authority, &lab_.node);
    SSL_CTX_set_min_proto_version(older.get(), TLS1_2_VERSION);
    SSL_CTX_set_max_proto_version(older.get(), TLS1_2_VERSION);
    tls_raw_peer raw(server.end->address(), *older);
    EXPECT_EQ(settle(raw, server), step::failed);

    const ssl_context_ptr web = bare_context(lab_.authority, &lab_.node);
    const unsigned char h2[] = "\x02h2";
    SSL_CTX_set_alpn_protos(web.get(), h2, 3);
    tls_raw_peer browser(server.end->address(), *web);
    EXPECT_EQ(settle(browser, server), step::failed);

    const ssl_context_ptr silent = bare_context(lab_.authority, &lab_.node);
    SSL_CTX_set_alpn_protos(silent.get(), nullptr, 0);
    tls_raw_peer nameless(server.end->address(), *silent);
    EXPECT_EQ(settle(nameless, server), step::failed);
    expect_served(server);
}

TEST_F(tls, a_server_that_is_not_whom_the_address_names_is_denied) {
    const test_certificate elsewhere = lab_.authority.issue({.hosts = "DNS:elsewhere.example"});
    tcp_test_port server(local, with_trust(lab_.trust_of(elsewhere)));
    tcp_test_port caller("tcp+tls://", with());
    EXPECT_EQ(fate_of(caller, server.end->address(), {&server}).code, errc::denied);
}

TEST_F(tls, a_server_with_an_expired_certificate_is_denied) {
    raw_listener far;
    tcp_test_port caller("tcp+tls://", with());
    tcp_test_port::operation op;
    const std::string address = "tcp+tls" + far.address().substr(3);
    EXPECT_EQ(caller.post(caller.look_up(address), 1, "secret", op), posted::pending);
    move_until({&caller}, [&] { return far.has_caller(); });
    const test_certificate expired = lab_.authority.issue({.starts = -100, .ends = -10});
    const ssl_context_ptr context = bare_context(lab_.authority, &expired);
    tls_raw_peer raw(far.accept(), *context, tls_session::side::accepting);
    while (!op.over) {
        caller.end->progress();
        (void)raw.try_step();
    }
    EXPECT_EQ(op.code, errc::denied);
}

TEST_F(tls, a_server_that_asks_for_no_certificate_is_no_reason_to_send_before_its_hello) {
    raw_listener far;
    tcp_test_port caller("tcp+tls://", with());
    tcp_test_port::operation op;
    const std::string address = "tcp+tls" + far.address().substr(3);
    EXPECT_EQ(caller.post(caller.look_up(address), 1, "secret", op), posted::pending);
    move_until({&caller}, [&] { return far.has_caller(); });
    const ssl_context_ptr context = bare_context(lab_.authority, &lab_.node);
    tls_raw_peer raw(far.accept(), *context, tls_session::side::accepting);
    EXPECT_EQ(settle(raw, caller), step::complete);
    caller.end->progress();
    ASSERT_TRUE(raw.hear_hello());
    EXPECT_EQ(raw.theirs.incarnation, caller.end->incarnation());
    for (int i = 0; i < 10; ++i)
        caller.end->progress();
    EXPECT_FALSE(raw.plain().has_something());
    raw.send(encoded_hello({.incarnation = 3}).bytes());
    move_until({&caller}, [&] { return op.over; });
    EXPECT_EQ(op.code, errc::ok);
    EXPECT_EQ(raw.receive().substr(16), "secret");
}

// ---- a plain port and one with TLS

struct meeting : testing::Test, event_source {
    poller events;
    binding from;
    hello ours{.incarnation = 1};
    test_lab lab;
    tls_sessions sessions{lab.trust};
    handshake_setting setting{events, from, ours, 5000ms};
    handshake::state now = handshake::state::waiting;
    handshake* running = nullptr;
    raw_listener listener;

    void ready(std::uint32_t what) noexcept override { now = running->ready(what); }
    /// Connects a raw peer, and gives the far end to a handshake, which becomes the running one.
    std::unique_ptr<handshake> accepted(std::optional<tcp_raw_peer>& raw) {
        raw.emplace("tcp" + listener.address().substr(3));
        tcp_raw_peer taken = listener.accept();
        auto made = std::make_unique<handshake>(setting, *this, "tcp://stranger:1",
                                                unique_fd(::dup(taken.fd())));
        running = made.get();
        return made;
    }
    void run() {
        while (now == handshake::state::waiting)
            events.poll();
    }
    static bool says(const failure& why, std::string_view what) {
        return why.sentence.find(what) != std::string::npos;
    }
};

TEST_F(meeting, one_that_encrypts_and_comes_to_a_plain_port_is_told_from_strangers) {
    std::optional<tcp_raw_peer> raw;
    const auto way = accepted(raw);
    tls_raw_peer sealed(std::move(*raw), *bare_context(lab.authority, &lab.node),
                        tls_session::side::connecting);
    (void)sealed.try_step();
    run();
    EXPECT_EQ(way->why().what.code, errc::unreachable);
    EXPECT_TRUE(says(way->why(), "encrypts, and this port does not; use tcp+tls:// at both"))
        << way->why().sentence;
}

TEST_F(meeting, one_that_does_not_encrypt_is_told_so_and_tells_its_user) {
    setting.tls = &sessions;
    std::optional<tcp_raw_peer> raw;
    {
        const auto way = accepted(raw);
        raw->send(encoded_hello({.incarnation = 3}).bytes());
        run();
        EXPECT_EQ(way->why().what.code, errc::unreachable);
        EXPECT_TRUE(says(way->why(), "does not encrypt, and this port does"))
            << way->why().sentence;
        EXPECT_TRUE(way->is_refused());
    }
    hello_reader reader;
    while (reader.read(raw->fd()) == hello_reader::state::starving)
        continue;
    EXPECT_TRUE(reader.is_tls());
}

TEST_F(meeting, a_sentence_says_what_is_wrong_with_the_peer) {
    setting.tls = &sessions;
    const test_certificate expired = lab.authority.issue({.starts = -100, .ends = -10});
    const ssl_context_ptr wrong = bare_context(lab.authority, &expired);
    const ssl_context_ptr none = bare_context(lab.authority, nullptr);
    const auto told = [&](SSL_CTX& context) {
        now = handshake::state::waiting;
        std::optional<tcp_raw_peer> raw;
        const auto way = accepted(raw);
        tls_raw_peer sealed(std::move(*raw), context, tls_session::side::connecting);
        while (now == handshake::state::waiting) {
            (void)sealed.try_step();
            events.poll();
        }
        EXPECT_EQ(way->why().what.code, errc::denied);
        return way->why().sentence;
    };
    EXPECT_EQ(told(*wrong),
              "no TLS with tcp://stranger:1: the peer's certificate is refused: certificate has "
              "expired");
    EXPECT_EQ(told(*none), "no TLS with tcp://stranger:1: the peer showed no certificate");
}

TEST_F(tls, a_plain_listener_is_unreachable) {
    tcp_test_port plain("tcp://127.0.0.1:0"), caller("tcp+tls://", with());
    const std::string address = "tcp+tls" + plain.end->address().substr(3);
    EXPECT_EQ(fate_of(caller, address, {&plain}).code, errc::unreachable);
    tcp_test_port sealed(local, with()), open("tcp://");
    EXPECT_EQ(fate_of(open, "tcp" + sealed.end->address().substr(7), {&sealed}).code,
              errc::unreachable);
    EXPECT_EQ(refused(sealed), 1u);
}

// ---- time and room

TEST_F(tls, silent_and_slow_strangers_are_dropped_when_the_limit_is_over) {
    tcp_test_port server(local, with({.silence_limit = 60ms}));
    const ssl_context_ptr context = bare_context(lab_.authority, &lab_.node);
    tcp_raw_peer silent("tcp" + server.end->address().substr(7));
    tls_raw_peer halfway(server.end->address(), *context);
    (void)halfway.try_step();
    tls_raw_peer no_hello(server.end->address(), *context);
    settle(no_hello, server);
    for (tcp_raw_peer* each : {&silent, &halfway.plain(), &no_hello.plain()})
        move_until({&server}, [&] {
            char some[10'000];
            const ssize_t got = ::recv(each->fd(), some, sizeof some, MSG_DONTWAIT);
            return got == 0 || (got < 0 && errno != EAGAIN);
        });
}

TEST_F(tls, a_listener_that_never_answers_is_unreachable_when_the_limit_is_over) {
    raw_listener far;
    tcp_test_port caller("tcp+tls://", with({.silence_limit = 50ms}));
    EXPECT_EQ(fate_of(caller, "tcp+tls" + far.address().substr(3)).code, errc::unreachable);
}

TEST_F(tls, strangers_within_their_handshake_make_way_for_newcomers) {
    tcp_test_port server(local, with({.silence_limit = std::chrono::hours(1), .max_strangers = 8}));
    const ssl_context_ptr context = bare_context(lab_.authority, &lab_.node);
    std::deque<tls_raw_peer> halfway;
    for (int i = 0; i < 30; ++i) {
        halfway.emplace_back(server.end->address(), *context);
        (void)halfway.back().try_step();
        server.end->progress();
    }
    expect_served(server);
    EXPECT_GE(server.end->usage().evicted, 22u);
}

TEST_F(tls, a_thousand_within_their_handshake_hold_a_bounded_memory) {
    constexpr std::size_t count = 1000;
    const descriptors enough(2 * count + 100);
    if (!enough) GTEST_SKIP() << "needs 2100 file descriptors (ulimit -Hn)";
    tcp_test_port server(local, with({.silence_limit = std::chrono::hours(1)}));
    const ssl_context_ptr context = bare_context(lab_.authority, &lab_.node);
    std::deque<tls_raw_peer> crowd;
    for (std::size_t i = 0; i < count; ++i) {
        crowd.emplace_back(server.end->address(), *context);
        (void)crowd.back().try_step();
    }
    // Each waits for an answer; now the server gives it, and waits for theirs.
    const auto before = ::mallinfo2();
    std::size_t answered = 0;
    while (answered < count) {
        server.end->progress();
        answered = static_cast<std::size_t>(
            std::count_if(crowd.begin(), crowd.end(),
                          [](tls_raw_peer& each) { return each.plain().has_something(); }));
    }
    const auto after = ::mallinfo2();
    const std::size_t each =
        (after.uordblks + after.hblkhd - before.uordblks - before.hblkhd) / count;
    RecordProperty("bytes_each", static_cast<int>(each));
    if (after.uordblks > before.uordblks) {  // A sanitizer's malloc() does not count.
        EXPECT_LT(each, 64u << 10) << "less than the record buffers alone";
    }
    EXPECT_EQ(server.end->usage().evicted, 0u);
    expect_served(server);
}

TEST_F(tls, a_thousand_handshakes_at_once_do_not_hold_up_a_connection_that_stands) {
    constexpr std::size_t count = 1000;
    const descriptors enough(2 * count + 100);
    if (!enough) GTEST_SKIP() << "needs 2100 file descriptors (ulimit -Hn)";
    // They wait for each other for longer on a busy machine.
    const port_options patient = with({.silence_limit = std::chrono::hours(1)});
    tcp_test_port server(local, patient), good("tcp+tls://", patient);
    const auto [to, back] = connect(good, server);
    const ssl_context_ptr context = bare_context(lab_.authority, &lab_.node);
    std::deque<tls_raw_peer> crowd;
    for (std::size_t i = 0; i < count; ++i) {
        crowd.emplace_back(server.end->address(), *context);
        (void)crowd.back().try_step();
    }
    std::vector<step> now(crowd.size(), step::waiting);
    std::size_t rounds = 0, echoes = 0, left = crowd.size();
    std::size_t sent_at = 0, worst = 0;
    ASSERT_TRUE(good.send(to, 1, "ping"));
    server.on_arrival = [&, from = back](message&) { (void)server.send(from, 2, "pong"); };
    while (left > 0) {
        server.end->progress();
        good.end->progress();
        ++rounds;
        if (!good.arrived.empty()) {
            good.arrived.clear();
            worst = std::max(worst, rounds - sent_at);
            sent_at = rounds;
            ++echoes;
            ASSERT_TRUE(good.send(to, 1, "ping"));
        }
        for (std::size_t i = rounds % 10; i < crowd.size(); i += 10) {
            if (now[i] != step::waiting) continue;
            now[i] = crowd[i].try_step();
            ASSERT_NE(now[i], step::failed);
            if (now[i] == step::complete) --left;
        }
    }
    EXPECT_GE(rounds, crowd.size() / tls_sessions::steps_per_round) << "a few in each round";
    EXPECT_GT(echoes, 20u);
    EXPECT_LT(worst, 40u) << "rounds for one echo";
    EXPECT_TRUE(good.lost.empty());
}

TEST_F(tls, strangers_within_their_handshake_make_way_when_no_descriptor_is_left) {
    // Who stands may be idle for as long as this takes on a busy machine.
    tcp_test_port server(local, with({.silence_limit = std::chrono::hours(1)}));
    tcp_test_port good("tcp+tls://", with());
    const auto [to, back] = connect(good, server);
    const ssl_context_ptr context = bare_context(lab_.authority, &lab_.node);
    std::deque<tls_raw_peer> halfway, newcomers;
    for (int i = 0; i < 20; ++i) {
        halfway.emplace_back(server.end->address(), *context);
        (void)halfway.back().try_step();
        while (!halfway.back().plain().has_something())
            server.end->progress();
    }
    for (int i = 0; i < 20; ++i) {
        newcomers.emplace_back(server.end->address(), *context);
        (void)newcomers.back().try_step();
    }
    rlimit before;
    ::getrlimit(RLIMIT_NOFILE, &before);
    const rlimit none{static_cast<rlim_t>(newcomers.back().fd() + 1), before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
    for (tls_raw_peer& each : newcomers)
        EXPECT_EQ(settle(each, server), step::complete);
    // Who stands does not notice.
    server.arrived.clear();
    EXPECT_TRUE(good.send(to, 1, "ping"));
    move_until({&server, &good}, [&] { return !server.arrived.empty(); });
    ::setrlimit(RLIMIT_NOFILE, &before);
    EXPECT_TRUE(good.lost.empty());
    EXPECT_GE(server.end->usage().evicted, 20u);
    expect_served(server);
}

TEST_F(tls, a_hello_behind_more_records_than_one_step_takes_is_heard) {
    tcp_test_port server(local, with());
    const ssl_context_ptr context = bare_context(lab_.authority, &lab_.node);
    tls_raw_peer raw(server.end->address(), *context);
    ASSERT_EQ(settle(raw, server), step::complete);
    // Renewed keys, a record each, and nothing in them.
    constexpr std::size_t many = tls_session::records_at_a_time + 30;
    static_assert(many < tls_session::messages_a_second);
    for (std::size_t i = 0; i < many; ++i) {
        SSL_key_update(raw.session().native(), SSL_KEY_UPDATE_NOT_REQUESTED);
        EXPECT_EQ(SSL_do_handshake(raw.session().native()), 1);
    }
    raw.send(encoded_hello({.incarnation = 1}).bytes());
    // Answered, or late: the only two ends.
    hello_reader reader;
    while (reader.read(raw.fd(), &raw.session()) == hello_reader::state::starving)
        server.end->progress();
    EXPECT_NE(reader.result().incarnation, 0u);
}

// ---- once it stands

/// A raw peer with which the port has exchanged hellos.
tls_raw_peer greeted(tcp_test_port& server, SSL_CTX& context) {
    tls_raw_peer raw(server.end->address(), context);
    step now = step::waiting;
    while (now == step::waiting) {
        server.end->progress();
        now = raw.try_step();
    }
    raw.send(encoded_hello({.incarnation = 1}).bytes());
    hello_reader reader;
    while (reader.read(raw.fd(), &raw.session()) == hello_reader::state::starving)
        server.end->progress();
    return raw;
}

TEST_F(tls, a_connection_that_is_cut_loses_its_peer_and_delivers_nothing_of_the_last_frame) {
    tcp_test_port server(local, with());
    const ssl_context_ptr context = bare_context(lab_.authority, &lab_.node);
    for (const bool reset : {false, true}) {
        tls_raw_peer raw = greeted(server, *context);
        raw.send_frame({.kind = frame_kind::unexpected, .tag = 1},
                       as_bytes_of(std::string(50, 'x')));
        raw.send(to_wire({.bytes = 100'000, .kind = frame_kind::unexpected, .tag = 2}));
        raw.send(std::string(60'000, 'y'));
        move_until({&server}, [&] { return !server.arrived.empty(); });
        const linger at_once{1, 0};
        if (reset) ::setsockopt(raw.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        { tls_raw_peer gone = std::move(raw); }
        move_until({&server}, [&] { return !server.lost.empty(); });
        EXPECT_EQ(server.lost.front().second.code, errc::disconnected);
        EXPECT_EQ(server.arrived.size(), 1u);
        server.lost.clear();
        server.arrived.clear();
    }
}

TEST_F(tls, a_changed_byte_ends_the_connection_and_delivers_nothing) {
    tcp_test_port server(local, with());
    const ssl_context_ptr context = bare_context(lab_.authority, &lab_.node);
    tls_raw_peer raw = greeted(server, *context);
    raw.plain().send(std::string("\x17\x03\x03\x00\x40", 5));
    raw.plain().send(std::string(64, 'z'));
    move_until({&server}, [&] { return !server.lost.empty(); });
    EXPECT_EQ(server.lost.front().second.native, EPROTO);
    EXPECT_TRUE(server.arrived.empty());
    expect_served(server);
}

TEST_F(tls, a_peer_that_asks_for_new_keys_gets_them_and_goes_on) {
    tcp_test_port server(local, with());
    const ssl_context_ptr context = bare_context(lab_.authority, &lab_.node);
    tls_raw_peer raw = greeted(server, *context);
    for (std::uint64_t i = 0; i < 100; ++i) {
        SSL_key_update(raw.session().native(), SSL_KEY_UPDATE_REQUESTED);
        raw.send_frame({.kind = frame_kind::unexpected, .tag = i}, {});
    }
    move_until({&server}, [&] { return server.arrived.size() == 100; });
    ASSERT_TRUE(server.send(server.arrived.front().from, 5, "answer"));
    server.end->progress();
    EXPECT_EQ(raw.receive().substr(0, 16 + 6).substr(16), "answer");
}

TEST_F(tls, a_peer_that_floods_with_new_keys_is_dropped_and_takes_no_time_from_others) {
    tcp_test_port server(local, with()), good("tcp+tls://", with());
    const auto [to, back] = connect(good, server);
    const ssl_context_ptr context = bare_context(lab_.authority, &lab_.node);
    tls_raw_peer raw = greeted(server, *context);
    // All of it is there before the port reads any, and in records of their own.
    std::size_t renewed = 0;
    for (; renewed < 4000 && !raw.session().has_pending(); ++renewed) {
        SSL_key_update(raw.session().native(), SSL_KEY_UPDATE_NOT_REQUESTED);
        (void)raw.session().write_whole(to_wire({.kind = frame_kind::unexpected, .tag = renewed}));
    }
    EXPECT_GT(renewed, std::size_t{tls_session::messages_a_second});
    ASSERT_TRUE(good.send(to, 1, "ping"));
    std::size_t rounds = 0;
    while (server.lost.empty()) {
        server.end->progress();
        good.end->progress();
        ASSERT_LT(++rounds, 1000u);
    }
    EXPECT_EQ(server.lost.front().second.native, EPROTO);
    const auto has_pinged = [from = back](const auto& each) { return each.from == from; };
    move_until({&server, &good}, [&] {
        return std::any_of(server.arrived.begin(), server.arrived.end(), has_pinged);
    });
    EXPECT_TRUE(good.lost.empty());
    server.arrived.clear();
    expect_served(server);
}

TEST_F(tls, many_small_records_of_one_peer_do_not_keep_a_round_busy) {
    tcp_test_port server(local, with());
    const ssl_context_ptr context = bare_context(lab_.authority, &lab_.node);
    tls_raw_peer raw = greeted(server, *context);
    // One frame in records of a byte each.
    const auto header = to_wire({.bytes = 2000, .kind = frame_kind::unexpected, .tag = 4});
    raw.send(header);
    const std::string text(2000, 'y');
    for (const char& each : text)
        ASSERT_TRUE(raw.session().write_whole(as_bytes_of(std::string_view(&each, 1))));
    ASSERT_FALSE(raw.session().has_pending());
    std::size_t rounds = 0;
    for (; server.arrived.empty(); ++rounds)
        server.end->progress();
    EXPECT_GE(rounds, 2000 / (8 * tls_session::records_at_a_time));
    EXPECT_EQ(server.arrived.front().text, text);
    EXPECT_TRUE(server.lost.empty());
}

TEST_F(tls, the_second_connection_to_an_address_resumes_the_first) {
    raw_listener far;
    tcp_test_port caller("tcp+tls://", with());
    const ssl_context_ptr context = bare_context(lab_.authority, &lab_.node);
    const std::string address = "tcp+tls" + far.address().substr(3);
    for (const bool again : {false, true, true}) {
        const peer_id there = caller.look_up(address);
        move_until({&caller}, [&] { return far.has_caller(); });
        tls_raw_peer raw(far.accept(), *context, tls_session::side::accepting);
        ASSERT_EQ(settle(raw, caller), step::complete);
        caller.end->progress();
        ASSERT_TRUE(raw.hear_hello());
        raw.send(encoded_hello({.incarnation = 3}).bytes());
        tcp_test_port::operation op;
        const posted how = caller.post(there, 1, "x", op);
        move_until({&caller}, [&] { return how == posted::done || op.over; });
        EXPECT_EQ(raw.session().resumed(), again);
        caller.end->close(there);
        caller.end->progress();
    }
}

TEST_F(tls, a_server_that_is_no_longer_trusted_is_not_reached_by_an_earlier_session) {
    const temp_folder folder;
    const std::string at = folder.with("node");
    lab_.authority.write_folder(at, lab_.node);
    const auto trust = credentials::from_folder(at);
    raw_listener far;
    tcp_test_port caller("tcp+tls://", with_trust(trust));
    const ssl_context_ptr context = bare_context(lab_.authority, &lab_.node);
    const std::string address = "tcp+tls" + far.address().substr(3);
    for (const step expected : {step::complete, step::failed}) {
        const peer_id there = caller.look_up(address);
        move_until({&caller}, [&] { return far.has_caller(); });
        tls_raw_peer raw(far.accept(), *context, tls_session::side::accepting);
        ASSERT_EQ(settle(raw, caller), expected);
        if (expected == step::failed) break;
        caller.end->progress();
        ASSERT_TRUE(raw.hear_hello());
        raw.send(encoded_hello({.incarnation = 3}).bytes());
        tcp_test_port::operation op;
        const posted how = caller.post(there, 1, "x", op);
        move_until({&caller}, [&] { return how == posted::done || op.over; });
        caller.end->close(there);
        caller.end->progress();
        const test_authority next;
        next.write_folder(at, next.issue());
        ASSERT_TRUE(trust->reload());
    }
}

TEST_F(tls, changed_credentials_hold_for_new_connections_and_leave_old_ones_alone) {
    const temp_folder folder;
    const std::string at = folder.with("node");
    lab_.authority.write_folder(at, lab_.node);
    const auto trust = credentials::from_folder(at);
    tcp_test_port server(local, with_trust(trust)), old_one("tcp+tls://", with());
    const auto [to, back] = connect(old_one, server);

    const test_authority next;
    const test_certificate node = next.issue();
    next.write_folder(at, node);
    ASSERT_TRUE(trust->reload());
    tcp_test_port late("tcp+tls://", with());
    EXPECT_EQ(fate_of(late, server.end->address(), {&server}).code, errc::denied);
    ASSERT_TRUE(old_one.send(to, 7, "still there"));
    move_until({&old_one, &server}, [&] { return !server.arrived.empty(); });
    tcp_test_port fresh("tcp+tls://", with_trust(credentials::from_folder(at)));
    connect(fresh, server);
}

TEST_F(tls, a_file_system_of_credentials_that_does_not_answer_holds_up_no_connection) {
    const temp_folder folder;
    const std::string at = folder.with("node");
    lab_.authority.write_folder(at, lab_.node);
    const auto trust = credentials::from_folder(at);
    tcp_test_port server(local, with_trust(trust)), old_one("tcp+tls://", with());
    const auto [to, back] = connect(old_one, server);
    silent_folder silent(at);
    if (!silent) GTEST_SKIP() << "this process may mount nothing";
    std::string told;
    default_logger().set_sink([&](const log_record& line) { told += to_text(line); });
    move_until({&old_one, &server}, [&] {
        (void)trust->store().current(std::chrono::steady_clock::now() + std::chrono::hours(1));
        return told.find("does not answer") != told.npos;
    });
    default_logger().set_sink({});
    ASSERT_TRUE(old_one.send(to, 7, "still there"));
    move_until({&old_one, &server}, [&] { return !server.arrived.empty(); });
    server.arrived.clear();
    tcp_test_port fresh("tcp+tls://", with());
    connect(fresh, server);

    silent.end();
    const test_authority next;
    next.write_folder(at, next.issue({.name = "renewed"}));
    move_until({&old_one, &server}, [&] { return trust->self().name == "renewed"; });
    tcp_test_port late("tcp+tls://", with());
    EXPECT_EQ(fate_of(late, server.end->address(), {&server}).code, errc::denied);
}

TEST_F(tls, certificates_made_anew_and_revoked_under_load_hold_for_newcomers_only) {
    expect_reload_and_revocation_under_load(
        [](const port_options& options) { return tcp_test_port(local, options); });
}

TEST_F(tls, the_end_of_an_inherited_port_in_a_child_leaves_the_parents_keys_alone) {
    tcp_test_port here(local, with()), there(local, with());
    const auto [to, back] = connect(here, there);
    (void)here.send(to, 1, "a");
    (void)here.send(to, 2, "gathered: the child must not send it");
    const pid_t child = ::fork();
    if (child == 0) {
        here.end.reset();
        there.end.reset();
        ::_exit(0);
    }
    int code = -1;
    ASSERT_EQ(::waitpid(child, &code, 0), child);
    ASSERT_TRUE(here.send(to, 3, "b"));
    move_until({&here, &there}, [&] { return there.arrived.size() == 3; });
    EXPECT_EQ(there.arrived[1].tag, 2u);
    EXPECT_TRUE(there.lost.empty());
}

TEST_F(tls, what_was_gathered_leaves_before_the_end) {
    tcp_test_port there(local, with());
    {
        tcp_test_port here("tcp+tls://", with());
        const auto [to, back] = connect(here, there);
        std::size_t sent = 0;
        while (sent < 1000 && here.send(to, sent, std::string(100, 'x')))
            ++sent;
        ASSERT_EQ(sent, 1000u);
    }
    move_until({&there}, [&] { return !there.lost.empty(); });
    EXPECT_EQ(there.arrived.size(), 1000u);
}

}  // namespace
}  // namespace amalgam::detail
