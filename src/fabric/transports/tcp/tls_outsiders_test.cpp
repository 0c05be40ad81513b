// A port with TLS before programs of others: openssl s_client and s_server, curl.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "contains.hpp"
#include "fabric/transports/tcp/raw_peer.hpp"
#include "fabric/transports/tcp/test_port.hpp"
#include "fabric/trust/tls/tls_testing.hpp"
#include "temp_folder.hpp"

namespace amalgam::detail {
namespace {

using namespace std::chrono_literals;
struct outcome {
    int code;
    std::string output;
};

/// Runs it to the end, in a shell.
outcome run(const std::string& command) {
    std::FILE* const pipe = ::popen((command + " 2>&1 </dev/null").c_str(), "r");
    std::string all;
    char part[4096];
    for (std::size_t n; (n = std::fread(part, 1, sizeof part, pipe)) > 0;)
        all.append(part, n);
    const int ended = ::pclose(pipe);
    return {WIFEXITED(ended) ? WEXITSTATUS(ended) : -1, all};
}

/// A port that a thread of its own serves.
class served_port {
public:
    served_port(const std::string& where, const port_options& options) : port_(where, options) {
        address_ = port_.end->address();
        port_.on_arrival = [this](message&) { ++heard_; };
        server_ = std::thread([this] {
            while (!stop_)
                if (port_.end->progress() == 0) ::poll(nullptr, 0, 1);
        });
    }
    ~served_port() {
        stop_ = true;
        server_.join();
    }
    const std::string& address() const { return address_; }
    std::string host_and_port() const { return address_.substr(address_.find("://") + 3); }
    int heard() const { return heard_; }

private:
    tcp_test_port port_;
    std::string address_;
    std::atomic<bool> stop_{false};
    std::atomic<int> heard_{0};
    std::thread server_;
};

/// How a relay passes on what one end says.
struct treatment {
    std::size_t bytes = SIZE_MAX;  ///< So many of them,
    bool ends = true;              ///< and then the end of the connection, or nothing more.
    bool one_at_a_time = false;
};

/// Passes one connection on to a port, or to a program, from a thread of its own.
class relay {
public:
    explicit relay(const std::string& to, const treatment& of_caller = {},
                   const treatment& of_server = {})
        : to_("tcp" + to.substr(to.find("://"))) {
        directions_[0].how = of_caller;
        directions_[1].how = of_server;
        worker_ = std::thread([this] { pass_on(); });
    }
    ~relay() { finish(); }

    std::string address() const { return "tcp+tls" + listener_.address().substr(3); }
    /// What the caller has said and was passed on; once both ends have ended.
    std::size_t passed() {
        finish();
        return directions_[0].passed;
    }

private:
    struct direction {
        treatment how;
        std::size_t passed = 0;
        bool is_over = false;
    };

    void finish() {
        if (worker_.joinable()) worker_.join();
    }
    void pass_on() {
        std::array<tcp_raw_peer, 2> ends{listener_.accept(), tcp_raw_peer(to_)};
        const int on = 1;
        for (const tcp_raw_peer& each : ends)
            ::setsockopt(each.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        while (!directions_[0].is_over || !directions_[1].is_over) {
            std::array<pollfd, 2> handles{};
            for (std::size_t i = 0; i < 2; ++i)
                handles[i] = {directions_[i].is_over ? -1 : ends[i].fd(), POLLIN, 0};
            ::poll(handles.data(), handles.size(), -1);
            for (std::size_t i = 0; i < 2; ++i)
                if (handles[i].revents != 0) pass_on(directions_[i], ends[i], ends[1 - i]);
        }
    }
    static void pass_on(direction& along, tcp_raw_peer& from, tcp_raw_peer& to) {
        const std::string said = from.receive();
        const std::string bytes = said.substr(0, along.how.bytes - along.passed);
        along.passed += bytes.size();
        bool is_there = true;
        const std::size_t step = along.how.one_at_a_time ? 1 : bytes.size();
        for (std::size_t at = 0; at < bytes.size() && is_there; at += step)
            is_there = to.send(bytes.substr(at, step));
        const bool is_full = along.passed == along.how.bytes;
        along.is_over = said.empty() || !is_there || is_full;
        if (along.is_over && (!is_full || along.how.ends)) ::shutdown(to.fd(), SHUT_WR);
    }

    raw_listener listener_;
    std::string to_;
    std::array<direction, 2> directions_;
    std::thread worker_;
};

class tls_outsiders : public testing::Test {
protected:
    void SetUp() override {
        if (run("openssl version").code != 0) GTEST_SKIP() << "openssl is not installed";
        lab_.authority.write_folder(folder_.with("node"), lab_.node);
        other_.authority.write_folder(folder_.with("other"), other_.node);
        lab_.authority.write_folder(folder_.with("expired"),
                                    lab_.authority.issue({.starts = -100, .ends = -10}));
    }
    port_options with(std::chrono::milliseconds limit = 5000ms) const {
        return {.silence_limit = limit, .trust = lab_.trust};
    }
    std::string files_of(const std::string& whose) const {
        const std::string at = folder_.with(whose);
        return " -CAfile " + folder_.with("node") + "/authority.pem -cert " + at +
               "/certificate.pem -key " + at + "/key.pem ";
    }
    outcome s_client(const served_port& to, const std::string& words) const {
        return run("openssl s_client -brief -ign_eof -verify_return_error -connect " +
                   to.host_and_port() + " " + words);
    }
    /// What s_client says as a port: a hello, and a message of 5,000 bytes. Returns the file's
    /// path.
    std::string as_a_port() const {
        frame_header head;
        head.kind = frame_kind::unexpected;
        head.tag = 1;
        head.bytes = 5000;
        const encoded_hello ours(hello{.incarnation = 77});
        const auto header = to_wire(head);
        std::ofstream said(folder_.with("said"), std::ios::binary);
        for (const const_bytes part : {ours.bytes(), const_bytes(header)})
            said.write(reinterpret_cast<const char*>(part.data()),
                       static_cast<std::streamsize>(part.size()));
        said << std::string(5000, 't');
        return folder_.with("said");
    }
    /// s_client says that to `address`.
    outcome speak(const std::string& address, const std::string& words = "") const {
        return run("(openssl s_client -quiet -no_ign_eof -alpn amalgam/1 " + files_of("node") +
                   " -verify_return_error -connect " + address.substr(address.find("://") + 3) +
                   " " + words + " <" + as_a_port() + ")");
    }
    static void await(const served_port& server, int heard) {
        while (server.heard() < heard && !HasFailure())
            std::this_thread::yield();
    }
    bool is_served(const served_port& server) const {
        const int before = server.heard();
        tcp_test_port good("tcp+tls://", with());
        tcp_test_port::operation op;
        const posted how = good.post(good.look_up(server.address()), 1, "good", op);
        move_until({&good}, [&] {
            return (how == posted::done || op.over) && (server.heard() > before || op.over);
        });
        return op.code == errc::ok && good.lost.empty();
    }
    void expect_served(const served_port& server) const { EXPECT_TRUE(is_served(server)); }
    /// By a server whose limit on a busy machine may be too short for good callers, too.
    void expect_served_in_the_end(const served_port& server) const {
        while (!is_served(server)) {
        }
    }
    /// By such a server, which is to let it in or to tell it why not.
    outcome s_client_that_is_answered(const served_port& to, const std::string& words) const {
        outcome met = s_client(to, words);
        while (!contains(met.output, "alert") && !contains(met.output, "CONNECTION ESTABLISHED"))
            met = s_client(to, words);
        return met;
    }
    /// What a port gets that calls `openssl s_server` with these words.
    errc call(const std::string& words) const { return call("-Verify 1 " + words, with()); }
    static errc call(const std::string& words, const port_options& options,
                     const std::optional<treatment>& of_server = {},
                     const treatment& of_caller = {}) {
        const std::string command =
            "exec openssl s_server -accept 127.0.0.1:0 -naccept 1 -alpn amalgam/1 " + words +
            " 2>&1 </dev/zero";
        std::FILE* const far = ::popen(command.c_str(), "r");
        char line[400];
        std::string address;
        while (address.empty() && std::fgets(line, sizeof line, far) != nullptr)
            if (std::string(line).starts_with("ACCEPT "))
                address = "tcp+tls://" + std::string(line + 7, std::strcspn(line + 7, "\n"));
        EXPECT_FALSE(address.empty());
        std::optional<relay> between;
        if (of_server) address = between.emplace(address, of_caller, *of_server).address();
        tcp_test_port here("tcp+tls://", options);
        tcp_test_port::operation op;
        EXPECT_EQ(here.post(here.look_up(address), 1, "secret", op), posted::pending);
        move_until({&here}, [&] { return op.over; });
        std::string all;
        while (std::fgets(line, sizeof line, far) != nullptr)
            all += line;
        ::pclose(far);
        EXPECT_FALSE(contains(all, "secret")) << all;
        return op.code;
    }

    temp_folder folder_;
    test_lab lab_, other_;
};

TEST_F(tls_outsiders, s_client_with_a_certificate_of_ours_shakes_hands_by_tls_1_3) {
    served_port server("tcp+tls://127.0.0.1:0", with(400ms));
    const outcome met = s_client_that_is_answered(server, files_of("node") + "-alpn amalgam/1");
    EXPECT_TRUE(contains(met.output, "TLSv1.3")) << met.output;
    EXPECT_TRUE(contains(met.output, "Verification: OK")) << met.output;
    EXPECT_FALSE(contains(met.output, "alert")) << met.output;
    expect_served_in_the_end(server);
}

TEST_F(tls_outsiders, s_client_with_a_wrong_certificate_is_told_why_by_an_alert) {
    served_port server("tcp+tls://127.0.0.1:0", with());
    const std::string alpn = "-alpn amalgam/1";
    const outcome foreign = s_client(server, files_of("other") + alpn);
    EXPECT_TRUE(contains(foreign.output, "alert unknown ca")) << foreign.output;
    const outcome expired = s_client(server, files_of("expired") + alpn);
    EXPECT_TRUE(contains(expired.output, "alert certificate expired")) << expired.output;
    const outcome none = s_client(server, "-CAfile " + folder_.with("node/authority.pem ") + alpn);
    EXPECT_TRUE(contains(none.output, "alert certificate required")) << none.output;
    expect_served(server);
}

TEST_F(tls_outsiders, s_client_of_an_older_tls_or_without_our_protocol_is_refused) {
    served_port server("tcp+tls://127.0.0.1:0", with());
    const outcome older = s_client(server, files_of("node") + "-alpn amalgam/1 -tls1_2");
    EXPECT_TRUE(contains(older.output, "alert protocol version")) << older.output;
    const outcome nameless = s_client(server, files_of("node"));
    EXPECT_TRUE(contains(nameless.output, "alert no application protocol")) << nameless.output;
    const outcome web = s_client(server, files_of("node") + "-alpn h2");
    EXPECT_TRUE(contains(web.output, "alert no application protocol")) << web.output;
    expect_served(server);
}

TEST_F(tls_outsiders, curl_gets_nothing) {
    if (run("curl --version").code != 0) GTEST_SKIP() << "curl is not installed";
    served_port server("tcp+tls://127.0.0.1:0", with());
    for (const char* scheme : {"http", "https"}) {
        const outcome got =
            run("curl -sk --show-error " + std::string(scheme) + "://" + server.host_and_port());
        EXPECT_NE(got.code, 0) << got.output;
    }
    // Nor with a certificate that is right: it speaks another protocol, or names none.
    const std::string keys = " --cacert " + folder_.with("node/authority.pem") + " --cert " +
                             folder_.with("node/certificate.pem") + " --key " +
                             folder_.with("node/key.pem");
    for (const char* words : {"", " --no-alpn", " --tls13-ciphers TLS_AES_256_GCM_SHA384",
                              " --tls13-ciphers TLS_CHACHA20_POLY1305_SHA256"}) {
        const outcome got = run("curl -s --show-error --tlsv1.3" + keys + words + " https://" +
                                server.host_and_port());
        EXPECT_EQ(got.code, 35) << words << ": " << got.output;
        EXPECT_TRUE(contains(got.output, "no application protocol")) << words << ": " << got.output;
    }
    EXPECT_EQ(server.heard(), 0);
    expect_served(server);
}

TEST_F(tls_outsiders, curl_with_a_wrong_certificate_or_an_older_tls_gets_nothing) {
    if (run("curl --version").code != 0) GTEST_SKIP() << "curl is not installed";
    served_port server("tcp+tls://127.0.0.1:0", with());
    const auto curl = [&](const std::string& whose, const std::string& words) {
        return run("curl -s --show-error --cacert " + folder_.with("node/authority.pem") +
                   " --cert " + folder_.with(whose + "/certificate.pem") + " --key " +
                   folder_.with(whose + "/key.pem") + words + " https://" + server.host_and_port());
    };
    for (const char* whose : {"expired", "other"}) {
        const outcome got = curl(whose, " --tlsv1.3");
        EXPECT_EQ(got.code, 35) << whose << ": " << got.output;
        EXPECT_TRUE(contains(got.output, "no application protocol")) << whose << ": " << got.output;
    }
    for (const char* whose : {"node", "expired", "other"}) {
        const outcome got = curl(whose, " --tlsv1.0 --tls-max 1.2");
        EXPECT_EQ(got.code, 35) << whose << ": " << got.output;
        EXPECT_TRUE(contains(got.output, "alert protocol version")) << whose << ": " << got.output;
    }
    EXPECT_EQ(server.heard(), 0);
    expect_served(server);
}

TEST_F(tls_outsiders,
       s_client_that_speaks_as_a_port_is_heard_by_every_cipher_of_ours_and_no_other) {
    served_port server("tcp+tls://127.0.0.1:0", with());
    int expected = 0;
    for (const char* cipher :
         {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
        for (const char* records : {"", " -record_padding 1000", " -max_send_frag 512",
                                    " -maxfraglen 512", " -maxfraglen 4096"}) {
            const outcome met =
                speak(server.address(), "-ciphersuites " + std::string(cipher) + records);
            EXPECT_FALSE(contains(met.output, "alert")) << cipher << records << ": " << met.output;
            await(server, ++expected);
        }
    for (const char* cipher : {"TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"}) {
        const outcome met = speak(server.address(), "-ciphersuites " + std::string(cipher));
        EXPECT_TRUE(contains(met.output, "alert handshake failure")) << met.output;
        EXPECT_EQ(call(files_of("node") + "-ciphersuites " + cipher), errc::denied) << cipher;
    }
    EXPECT_EQ(server.heard(), expected);
    expect_served(server);
}

TEST_F(tls_outsiders, one_that_sends_a_byte_at_a_time_is_dropped_when_the_limit_is_over) {
    served_port server("tcp+tls://127.0.0.1:0", with(200ms));
    tcp_raw_peer slow("tcp://" + server.host_and_port());
    // A record of a handshake that never becomes whole.
    slow.send(std::string("\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03", 11));
    while (!slow.has_something()) {
        if (!slow.send("a")) break;
        ::poll(nullptr, 0, 2);
    }
    expect_served_in_the_end(server);
}

// Within its hello, and within what proves who it is.
constexpr std::size_t in_its_handshake[] = {1, 4, 100, 700};

TEST_F(tls_outsiders, s_client_whose_words_are_cut_off_is_not_heard_and_let_go_at_once) {
    // No limit ends it.
    served_port server("tcp+tls://127.0.0.1:0", with(std::chrono::hours(1)));
    relay whole(server.address());
    speak(whole.address());
    await(server, 1);
    // Behind the message s_client says that it ends: 24 bytes.
    const std::size_t but_one = whole.passed() - 25;
    EXPECT_GT(but_one, 5000u) << "within the message";
    std::vector<std::size_t> cuts(std::begin(in_its_handshake), std::end(in_its_handshake));
    cuts.insert(cuts.end(), {5000, but_one});
    for (const std::size_t bytes : cuts) {
        relay cut(server.address(), {.bytes = bytes});
        speak(cut.address());
        EXPECT_EQ(cut.passed(), bytes);
        EXPECT_EQ(server.heard(), 1) << bytes;
    }
    expect_served(server);
}

TEST_F(tls_outsiders, s_client_that_falls_silent_is_let_go_when_the_limit_is_over) {
    served_port server("tcp+tls://127.0.0.1:0", with(400ms));
    for (const std::size_t bytes : in_its_handshake) {
        relay held(server.address(), {.bytes = bytes, .ends = false});
        speak(held.address());
    }
    EXPECT_EQ(server.heard(), 0);
    expect_served_in_the_end(server);
}

TEST_F(tls_outsiders, s_client_of_which_a_byte_arrives_at_a_time_is_heard) {
    served_port server("tcp+tls://127.0.0.1:0", with(std::chrono::hours(1)));
    relay slow(server.address(), {.one_at_a_time = true}, {.one_at_a_time = true});
    const outcome met = speak(slow.address());
    EXPECT_FALSE(contains(met.output, "alert")) << met.output;
    await(server, 1);
    expect_served(server);
}

TEST_F(tls_outsiders, s_server_whose_answer_is_cut_off_or_stops_is_unreachable) {
    const std::string right = "-Verify 1 " + files_of("node");
    for (const std::size_t bytes : in_its_handshake) {
        EXPECT_EQ(call(right, with(std::chrono::hours(1)), treatment{.bytes = bytes}),
                  errc::unreachable)
            << bytes;
        EXPECT_EQ(call(right, with(100ms), treatment{.bytes = bytes, .ends = false}),
                  errc::unreachable)
            << bytes;
    }
}

TEST_F(tls_outsiders, s_server_of_which_a_byte_arrives_at_a_time_is_judged_as_any_other) {
    const port_options patient = with(std::chrono::hours(1));
    constexpr treatment slow{.one_at_a_time = true};
    EXPECT_EQ(call("-Verify 1 " + files_of("node"), patient, slow, slow), errc::unreachable)
        << "right, but no port: it sends zeros";
    EXPECT_EQ(call("-Verify 1 " + files_of("expired"), patient, slow, slow), errc::denied);
    EXPECT_EQ(call("-Verify 1 " + files_of("other"), patient, slow, slow), errc::denied);
}

TEST_F(tls_outsiders, s_server_learns_nothing_whatever_it_is) {
    EXPECT_EQ(call(files_of("node")), errc::unreachable) << "right, but no port: it sends zeros";
    EXPECT_EQ(call(files_of("expired")), errc::denied);
    EXPECT_EQ(call(files_of("other")), errc::denied);
    EXPECT_EQ(call(files_of("node") + "-tls1_2"), errc::unreachable);
    EXPECT_EQ(
        call("-CAfile " + folder_.with("other/authority.pem") + " -verify_return_error -cert " +
             folder_.with("node/certificate.pem") + " -key " + folder_.with("node/key.pem")),
        errc::denied)
        << "it does not trust us";
}

/// Pre-shared keys of the test, as openssl is told them.
struct shared_key {
    explicit shared_key(char digit) : digits(64, digit) {}
    std::string as(const std::string& name) const {
        return " -psk " + digits + " -psk_identity " + name + " ";
    }
    std::string line(const std::string& name) const { return name + ":" + digits + "\n"; }
    const std::string digits;
};

std::string last_alert(const std::string& output) {
    const std::size_t at = output.rfind("SSL alert number ");
    return at == output.npos ? std::string() : output.substr(at, 20);
}

TEST_F(tls_outsiders, s_client_with_a_pre_shared_key_of_ours_is_let_in_and_no_other) {
    const shared_key right('4'), wrong('5');
    const auto trust =
        credentials::from_text({.shared_keys = wrong.line("own") + right.line("node7")});
    served_port server("tcp+tls://127.0.0.1:0", {.silence_limit = 400ms, .trust = trust});
    const auto met_by = [&](const std::string& words) {
        return s_client_that_is_answered(server, words);
    };
    const std::string alpn = "-alpn amalgam/1 ";
    const outcome met = met_by(alpn + right.as("node7"));
    EXPECT_TRUE(contains(met.output, "TLSv1.3")) << met.output;
    EXPECT_FALSE(contains(met.output, "alert")) << met.output;
    const outcome other = met_by(alpn + wrong.as("node7"));
    const outcome unknown = met_by(alpn + right.as("node8"));
    EXPECT_TRUE(contains(other.output, "alert")) << other.output;
    EXPECT_EQ(last_alert(other.output), last_alert(unknown.output))
        << "who asks must not learn which names there are";
    EXPECT_TRUE(contains(met_by(alpn + files_of("node")).output, "alert handshake failure"));
    EXPECT_TRUE(contains(met_by(alpn).output, "alert handshake failure"));
    EXPECT_TRUE(contains(met_by(right.as("node7")).output, "alert no application protocol"));
    EXPECT_TRUE(contains(met_by(alpn + right.as("node7") + "-tls1_2").output, "alert"));
    const outcome no_exchange = met_by(alpn + right.as("node7") + "-allow_no_dhe_kex");
    EXPECT_TRUE(contains(no_exchange.output, "Server Temp Key")) << no_exchange.output;

    errc became = errc::unreachable;
    while (became == errc::unreachable) {
        tcp_test_port good("tcp+tls://",
                           {.trust = credentials::from_text({.shared_keys = right.line("node7")})});
        tcp_test_port::operation op;
        const posted how = good.post(good.look_up(server.address()), 1, "good", op);
        move_until({&good}, [&] {
            return (how == posted::done || op.over) && (server.heard() > 0 || op.over);
        });
        became = op.code;
    }
    EXPECT_EQ(became, errc::ok);
}

TEST_F(tls_outsiders, s_server_with_a_pre_shared_key_learns_nothing_without_ours) {
    const shared_key right('4'), wrong('5');
    const port_options ours{.trust = credentials::from_text({.shared_keys = right.line("node7")})};
    EXPECT_EQ(call("-nocert" + right.as("node7"), ours), errc::unreachable)
        << "right, but no port: it sends zeros";
    EXPECT_EQ(call("-nocert" + wrong.as("node7"), ours), errc::denied);
    EXPECT_EQ(call("-nocert" + right.as("node8"), ours), errc::denied);
    EXPECT_EQ(call("-nocert", ours), errc::unreachable) << "without any key it has no TLS 1.3";
    EXPECT_EQ(call(files_of("node"), ours), errc::denied) << "a certificate, whoever signed it";
    EXPECT_EQ(call("-nocert -tls1_2" + right.as("node7"), ours), errc::unreachable);
}

}  // namespace
}  // namespace amalgam::detail
