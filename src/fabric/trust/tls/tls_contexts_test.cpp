// Handshakes between two ends in memory, as the tcp transport makes them over sockets.
#include "fabric/trust/tls/tls_contexts.hpp"

#include <chrono>
#include <ctime>
#include <string>

#include <gtest/gtest.h>
#include <openssl/err.h>

#include "fabric/limits.hpp"
#include "fabric/trust/credentials/credential_store.hpp"
#include "fabric/trust/key_folders/lab_testing.hpp"
#include "fabric/trust/tls/tls_testing.hpp"

namespace amalgam::detail {
namespace {

using namespace std::chrono_literals;

openssl_ptr<SSL_SESSION> last_session;

int keep_session(SSL*, SSL_SESSION* session) {
    last_session.reset(session);
    return 1;
}

void keep_sessions(SSL_CTX& context) {
    SSL_CTX_sess_set_new_cb(&context, &keep_session);
}

/// One end of a connection whose bytes pass through memory.
struct tls_end {
    explicit tls_end(SSL_CTX* context) : ssl(SSL_new(context)) {}
    /// Works on the handshake until it waits for the other end. False once it has failed.
    bool go_on() {
        if (done || why.code() != errc::ok) return why.code() == errc::ok;
        ERR_clear_error();
        const int now = SSL_do_handshake(ssl.get());
        done = now == 1;
        if (now != 1 && SSL_get_error(ssl.get(), now) != SSL_ERROR_WANT_READ)
            why = handshake_failure(ssl.get());
        return why.code() == errc::ok;
    }
    /// Takes what has arrived behind the handshake: tickets, refusals.
    void read() {
        char nothing[1];
        ERR_clear_error();
        const int now = SSL_read(ssl.get(), nothing, sizeof nothing);
        if (why.code() == errc::ok && now <= 0 &&
            SSL_get_error(ssl.get(), now) != SSL_ERROR_WANT_READ)
            why = handshake_failure(ssl.get());
    }

    openssl_ptr<SSL> ssl;
    bool done = false;
    result<void> why;
};

struct tls_pair {
    tls_pair(SSL_CTX* from, SSL_CTX* to, SSL_SESSION* resumed = nullptr)
        : client(from), server(to) {
        BIO *left = nullptr, *right = nullptr;
        BIO_new_bio_pair(&left, 0, &right, 0);
        SSL_set_bio(client.ssl.get(), left, left);
        SSL_set_bio(server.ssl.get(), right, right);
        SSL_set_connect_state(client.ssl.get());
        SSL_set_accept_state(server.ssl.get());
        if (resumed != nullptr) SSL_set_session(client.ssl.get(), resumed);
    }
    void meet() {
        for (int i = 0; i < 20; ++i) {
            const bool first = client.go_on(), second = server.go_on();
            if (!first && !second) break;
        }
        if (client.done) client.read();
        if (server.done) server.read();
    }
    tls_end client, server;
};

std::string told(const result<void>& why) {
    return std::string(name(why.code().code)) + ": " + why.sentence();
}

class tls_contexts_test : public testing::Test {
protected:
    tls_contexts of(const std::string& folder) {
        return tls_contexts(credentials::from_folder(folder), &keep_sessions);
    }
    /// The pair after it met, with those of two folders.
    tls_pair met(const std::string& from, const std::string& to) {
        tls_contexts client = of(from), server = of(to);
        tls_pair both(client.connecting().value(), server.accepting().value());
        both.meet();
        return both;
    }

    const lab_folder here;
    const std::string left = here.add("left", {.groups = {"compute", "admin"}});
    const std::string right = here.add("right", {.algorithm = key_algorithm::p256});
};

TEST_F(tls_contexts_test, two_that_one_authority_certified_know_each_other) {
    tls_pair both = met(left, right);
    ASSERT_TRUE(both.client.done && both.server.done)
        << told(both.client.why) << "; " << told(both.server.why);
    EXPECT_STREQ(SSL_get_version(both.client.ssl.get()), "TLSv1.3");
    const identity seen = verified_peer(both.server.ssl.get()).value();
    EXPECT_EQ(seen, credentials::from_folder(left)->self());
    EXPECT_EQ(to_text(seen), "left (groups: compute, admin)");
    EXPECT_EQ(verified_peer(both.client.ssl.get())->name, "right");
}

TEST_F(tls_contexts_test, the_peer_must_be_the_host_that_was_named) {
    tls_contexts client = of(left), server = of(right);
    for (const auto& [host, good] : {std::pair{"127.0.0.1", true},
                                     {"right.lab", true},
                                     {"127.0.0.2", false},
                                     {"::1", false},
                                     {"right", false},
                                     {"left.lab", false}}) {
        tls_pair both(client.connecting().value(), server.accepting().value());
        ASSERT_TRUE(expect_host(both.client.ssl.get(), host));
        both.meet();
        EXPECT_EQ(both.client.done, good) << host;
        if (!good) {
            EXPECT_EQ(both.client.why.code(), errc::denied) << told(both.client.why);
            EXPECT_NE(told(both.client.why).find("mismatch"), std::string::npos)
                << told(both.client.why);
        }
    }
    tls_pair both(client.connecting().value(), server.accepting().value());
    EXPECT_EQ(expect_host(both.client.ssl.get(), "").code(), errc::invalid);
}

TEST_F(tls_contexts_test, a_host_is_named_whole_and_never_by_a_common_name) {
    const test_lab lab;
    tls_contexts client(lab.trust);
    const struct {
        const char* name;
        const char* hosts;
        const char* asked;
        bool good;
    } all[] = {
        {"right.lab", "IP:127.0.0.1", "right.lab", false},
        {"right.lab", "", "right.lab", false},
        {"node", "DNS:*.here.lab", "right.here.lab", true},
        {"node", "DNS:*.here.lab", "far.right.here.lab", false},
        {"node", "DNS:r*.here.lab", "right.here.lab", false},
    };
    for (const auto& each : all) {
        const auto own = lab.authority.issue({.name = each.name, .hosts = each.hosts});
        tls_contexts server(lab.trust_of(own));
        tls_pair both(client.connecting().value(), server.accepting().value());
        ASSERT_TRUE(expect_host(both.client.ssl.get(), each.asked));
        both.meet();
        EXPECT_EQ(both.client.done, each.good) << each.name << " is for " << each.hosts;
    }
}

TEST_F(tls_contexts_test, another_authority_is_refused_by_both) {
    const lab_folder other;
    const std::string stranger = other.add("left");
    tls_pair from = met(stranger, right);
    EXPECT_EQ(from.client.why.code(), errc::denied) << told(from.client.why);
    tls_pair to = met(left, stranger);
    EXPECT_EQ(to.client.why.code(), errc::denied) << told(to.client.why);
    EXPECT_EQ(to.server.why.code(), errc::denied) << told(to.server.why);
    EXPECT_FALSE(verified_peer(to.server.ssl.get()));
}

TEST_F(tls_contexts_test, an_expired_certificate_is_refused_by_name) {
    tls_contexts client = of(left), server = of(right);
    // The client was started in time.
    const std::string late = here.add("late");
    tls_contexts old = of(late);
    (void)old.connecting();
    here.end_at(late, std::chrono::system_clock::now() - 1min);
    EXPECT_EQ(credentials::try_from_folder(late).code(), errc::invalid);
    SSL_CTX* const expired = old.connecting().value();
    const auto own = certificates_in(content(late + "/certificate.pem"), "late").value();
    ASSERT_EQ(SSL_CTX_use_certificate(expired, own.front().get()), 1);
    tls_pair both(expired, server.accepting().value());
    both.meet();
    EXPECT_EQ(told(both.server.why),
              "denied: the peer's certificate is refused: certificate has expired");
    EXPECT_EQ(told(both.client.why), "denied: the peer refuses us: our certificate has expired");
}

TEST_F(tls_contexts_test, a_revoked_certificate_is_refused_once_the_list_is_there) {
    tls_contexts client = of(left);
    const auto server_credentials = credentials::from_folder(right);
    tls_contexts server(server_credentials, &keep_sessions);
    SSL_CTX* const before = server.accepting().value();
    tls_pair good(client.connecting().value(), before);
    good.meet();
    ASSERT_TRUE(good.server.done) << told(good.server.why);

    revoke_key(left, here.lab);
    trust_authority(right, here.lab + "/revoked.pem");
    ASSERT_TRUE(server_credentials->reload());
    ASSERT_NE(server.accepting().value(), before);
    tls_pair both(client.connecting().value(), server.accepting().value());
    both.meet();
    EXPECT_EQ(told(both.server.why),
              "denied: the peer's certificate is refused: certificate revoked");
    EXPECT_EQ(told(both.client.why), "denied: the peer refuses us: our certificate is revoked");
}

TEST_F(tls_contexts_test, a_list_that_comes_within_a_handshake_counts_at_its_end) {
    const auto server_credentials = credentials::from_folder(right);
    tls_contexts server(server_credentials, &keep_sessions), of_left = of(left);
    const std::string other = here.add("other");
    tls_contexts of_other = of(other);
    const auto begun = [&](tls_contexts& from, SSL_SESSION* earlier = nullptr) {
        tls_pair both(from.connecting().value(), server.accepting().value(), earlier);
        EXPECT_TRUE(both.client.go_on() && both.server.go_on());
        return both;
    };
    last_session.reset();
    tls_pair first = begun(of_left);
    first.meet();
    const openssl_ptr<SSL_SESSION> kept = std::move(last_session);
    ASSERT_NE(kept, nullptr);
    // By a certificate, by a session that stood, and at the other end.
    tls_pair slow = begun(of_left), resumed = begun(of_left, kept.get()), good = begun(of_other);
    const auto left_credentials = credentials::from_folder(left);
    tls_contexts back(left_credentials);
    tls_pair to_revoked(back.connecting().value(), of_other.accepting().value());
    ASSERT_TRUE(expect_host(to_revoked.client.ssl.get(), "other.lab"));
    EXPECT_TRUE(to_revoked.client.go_on() && to_revoked.server.go_on());

    revoke_key(left, here.lab);
    trust_authority(right, here.lab + "/revoked.pem");
    ASSERT_TRUE(server_credentials->reload());
    for (tls_pair* const each : {&slow, &resumed}) {
        each->meet();
        ASSERT_TRUE(each->server.done) << told(each->server.why);
        const auto who = verified_peer(each->server.ssl.get());
        EXPECT_EQ(who.sentence(), "the peer's certificate is refused: certificate revoked");
        EXPECT_EQ(who.code(), errc::denied);
    }
    EXPECT_EQ(SSL_session_reused(resumed.server.ssl.get()), 1);
    good.meet();
    EXPECT_EQ(verified_peer(good.server.ssl.get())->name, "other");

    ASSERT_TRUE(left_credentials->reload());
    to_revoked.meet();
    EXPECT_EQ(verified_peer(to_revoked.client.ssl.get())->name, "other");
    EXPECT_EQ(ERR_peek_error(), 0u);
}

TEST_F(tls_contexts_test, an_authority_without_a_list_has_revoked_nothing_beside_one_that_has) {
    const lab_folder other;
    const std::string theirs = other.add("theirs");
    revoke_key(here.add("bad"), here.lab);
    for (const auto& [folder, authority] : {std::pair{theirs, here.lab}, {right, other.lab}})
        trust_authority(folder, authority + "/certificate.pem");
    trust_authority(theirs, here.lab);
    ASSERT_EQ(content(right + "/revoked.pem").find("X509 CRL") != std::string::npos, true);
    tls_pair both = met(theirs, right);
    EXPECT_TRUE(both.client.done && both.server.done)
        << told(both.client.why) << "; " << told(both.server.why);
    EXPECT_FALSE(met(here.with("bad"), theirs).server.done);
}

TEST_F(tls_contexts_test, authorities_between_are_shown_and_may_be_revoked) {
    const test_authority root;
    const test_authority middle = root.below(1800);
    const auto trust = [&](const std::string& revoked) {
        const test_certificate own = middle.issue();
        return credentials::from_text(
            {.certificate = pem_of(own.made.get()) + pem_of(middle.certificate()),
             .key = pem_of(own.key.get()),
             .authority = pem_of(root.certificate()),
             .revoked = revoked});
    };
    const auto own = trust("");
    EXPECT_LT(own->expires(), std::chrono::system_clock::now() + 31min)
        << "the one between ends first";
    tls_contexts client(own), server(trust(""));
    tls_pair both(client.connecting().value(), server.accepting().value());
    both.meet();
    EXPECT_TRUE(both.client.done && both.server.done)
        << told(both.client.why) << "; " << told(both.server.why);

    const x509_crl_ptr list = make_list(nullptr, X509_get0_serialNumber(middle.certificate()),
                                        *root.certificate(), *root.key());
    tls_contexts strict(trust(to_pem(*list)));
    tls_pair refused(client.connecting().value(), strict.accepting().value());
    refused.meet();
    EXPECT_EQ(told(refused.server.why),
              "denied: the peer's certificate is refused: certificate revoked");
}

TEST_F(tls_contexts_test, a_longer_chain_of_certificates_than_any_needs_is_refused_unread) {
    const test_lab lab;
    tls_contexts server(lab.trust);
    const ssl_context_ptr client = bare_context(lab.authority, &lab.node);
    const int each = i2d_X509(lab.node.made.get(), nullptr);
    ASSERT_GT(each, 0);
    for (long bytes = 0; bytes < limits::max_chain_bytes; bytes += each)
        ASSERT_EQ(SSL_CTX_add1_chain_cert(client.get(), lab.node.made.get()), 1);
    tls_pair both(client.get(), server.accepting().value());
    both.meet();
    EXPECT_NE(told(both.server.why).find("excessive message size"), std::string::npos)
        << told(both.server.why);
}

TEST_F(tls_contexts_test, a_certificate_is_good_for_the_end_that_it_is_for) {
    const test_lab lab;
    const test_certificate of_server = lab.authority.issue({.uses = "serverAuth"}),
                           of_client = lab.authority.issue({.uses = "clientAuth"});
    for (const bool by_key : {false, true}) {
        const auto trust = [&](const test_certificate& own, const test_certificate& other) {
            credential_parts parts{.certificate = pem_of(own.made.get()),
                                   .key = pem_of(own.key.get())};
            if (by_key)
                parts.trusted_keys = {fingerprint_of(*other.key)};
            else
                parts.authority = pem_of(lab.authority.certificate());
            return credentials::from_text(parts);
        };
        const auto met_by = [&](const test_certificate& from, const test_certificate& to) {
            tls_contexts client(trust(from, to)), server(trust(to, from));
            tls_pair both(client.connecting().value(), server.accepting().value());
            both.meet();
            return both;
        };
        EXPECT_TRUE(met_by(of_client, of_server).server.done) << by_key;
        const tls_pair no_client = met_by(of_server, of_server),
                       no_server = met_by(of_client, of_client);
        for (const auto* why : {&no_client.server.why, &no_server.client.why})
            EXPECT_NE(told(*why).find("certificate purpose"), std::string::npos) << told(*why);
    }
}

TEST_F(tls_contexts_test, who_was_valid_when_a_session_began_is_denied_once_he_is_not) {
    const test_lab lab;
    const test_certificate expired = lab.authority.issue({.starts = -100, .ends = -10});
    const ssl_context_ptr server = bare_context(lab.authority, &expired),
                          client = bare_context(lab.authority, &lab.node);
    // As where a session is resumed: OpenSSL does not look at the certificate.
    SSL_CTX_set_cert_verify_callback(
        client.get(),
        [](X509_STORE_CTX* at, void*) {
            X509_STORE_CTX_set_error(at, X509_V_OK);
            return 1;
        },
        nullptr);
    tls_pair both(client.get(), server.get());
    both.meet();
    ASSERT_TRUE(both.client.done) << told(both.client.why);
    const auto who = verified_peer(both.client.ssl.get());
    EXPECT_EQ(who.code(), errc::denied);
    EXPECT_NE(who.sentence().find("the peer's certificate has expired on 20"), std::string::npos)
        << who.sentence();
}

TEST_F(tls_contexts_test, a_session_is_resumed_and_still_known_but_not_with_other_credentials) {
    tls_contexts client = of(left);
    const auto server_credentials = credentials::from_folder(right);
    tls_contexts server(server_credentials, &keep_sessions);
    last_session.reset();
    tls_pair first(client.connecting().value(), server.accepting().value());
    first.meet();
    ASSERT_NE(last_session, nullptr);
    const openssl_ptr<SSL_SESSION> kept = std::move(last_session);
    ASSERT_EQ(SSL_SESSION_get_max_early_data(kept.get()), 0u);

    tls_pair again(client.connecting().value(), server.accepting().value(), kept.get());
    again.meet();
    ASSERT_TRUE(again.server.done) << told(again.server.why);
    EXPECT_EQ(SSL_session_reused(again.server.ssl.get()), 1);
    EXPECT_EQ(to_text(verified_peer(again.server.ssl.get()).value()),
              "left (groups: compute, admin)");
    EXPECT_EQ(verified_peer(again.client.ssl.get())->name, "right");

    ASSERT_TRUE(server_credentials->reload());
    tls_pair later(client.connecting().value(), server.accepting().value(), kept.get());
    later.meet();
    ASSERT_TRUE(later.server.done) << told(later.server.why);
    EXPECT_EQ(SSL_session_reused(later.server.ssl.get()), 0);
}

TEST_F(tls_contexts_test, a_session_stands_no_longer_than_the_authority_that_it_was_verified_by) {
    const test_authority root;
    for (const bool expires : {false, true}) {
        const test_authority between = root.below(expires ? -10 : 3600);
        const test_certificate peer = between.issue();
        const auto chain = pem_of(peer.made.get()) + pem_of(between.certificate());
        const auto trust = credentials::from_text({.certificate = chain,
                                                   .key = pem_of(peer.key.get()),
                                                   .authority = pem_of(root.certificate())});
        // The first handshake is that of a quarter of an hour ago.
        constexpr auto verify_in_the_past = [](SSL_CTX& context) {
            keep_sessions(context);
            X509_VERIFY_PARAM_set_time(SSL_CTX_get0_param(&context), std::time(nullptr) - 900);
        };
        tls_contexts client(trust, verify_in_the_past), server(trust, verify_in_the_past);
        // Each ticket is of the session before it.
        openssl_ptr<SSL_SESSION> kept;
        for (int round = 0; round < 3; ++round) {
            tls_pair pair(client.connecting().value(), server.accepting().value(), kept.get());
            pair.meet();
            ASSERT_TRUE(pair.client.done && pair.server.done) << told(pair.server.why);
            ASSERT_EQ(SSL_session_reused(pair.server.ssl.get()), round == 0 ? 0 : 1);
            EXPECT_EQ(verified_peer(pair.server.ssl.get()).code(),
                      round > 0 && expires ? errc::denied : errc::ok);
            for (SSL* end : {pair.server.ssl.get(), pair.client.ssl.get()})
                SSL_set_shutdown(end, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
            kept = std::move(last_session);
        }
    }
}

TEST_F(tls_contexts_test, the_latest_sessions_are_kept_and_no_more) {
    tls_contexts client = of(left);
    tls_contexts server(credentials::from_folder(right));  // Without the test's callback.
    openssl_ptr<SSL_SESSION> oldest;
    last_session.reset();
    for (long i = 0; i < tls_contexts::max_sessions + 3; ++i) {
        const openssl_ptr<SSL_SESSION> before = std::move(last_session);
        tls_pair next(client.connecting().value(), server.accepting().value(), before.get());
        next.meet();
        ASSERT_TRUE(next.server.done) << told(next.server.why);
        ASSERT_EQ(SSL_session_reused(next.server.ssl.get()), i == 0 ? 0 : 1) << i;
        // As tls_session does: OpenSSL forgets a session whose connection was broken off.
        for (SSL* end : {next.server.ssl.get(), next.client.ssl.get()})
            SSL_set_shutdown(end, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
        ASSERT_NE(last_session, nullptr);
        if (i != 0) continue;
        SSL_SESSION_up_ref(last_session.get());
        oldest.reset(last_session.get());
    }
    const long kept = SSL_CTX_sess_number(server.accepting().value());
    EXPECT_LE(kept, tls_contexts::max_sessions);
    EXPECT_GE(kept, tls_contexts::max_sessions - 1);
    tls_pair late(client.connecting().value(), server.accepting().value(), oldest.get());
    late.meet();
    ASSERT_TRUE(late.server.done) << told(late.server.why);
    EXPECT_EQ(SSL_session_reused(late.server.ssl.get()), 0);
}

TEST_F(tls_contexts_test, a_trusted_key_is_enough_and_no_other_gets_in) {
    const auto own = [&](const std::string& folder, const std::string& trusts) {
        return credential_parts{.certificate = folder + "/certificate.pem",
                                .key = folder + "/key.pem",
                                .trusted_keys = {credentials::from_folder(trusts)->self().key}};
    };
    const lab_folder other;
    const std::string stranger = other.add("stranger");
    tls_contexts client(credentials::from_files(own(stranger, right)));
    tls_contexts server(credentials::from_files(own(right, stranger)));
    tls_pair both(client.connecting().value(), server.accepting().value());
    ASSERT_TRUE(expect_host(both.client.ssl.get(), "elsewhere.example"));
    both.meet();
    ASSERT_TRUE(both.client.done && both.server.done)
        << told(both.client.why) << "; " << told(both.server.why);
    const identity who = *verified_peer(both.server.ssl.get());
    EXPECT_EQ(who.name, to_text(who.key));

    tls_contexts third = of(left);
    tls_pair refused(third.connecting().value(), server.accepting().value());
    refused.meet();
    EXPECT_EQ(refused.server.why.code(), errc::denied) << told(refused.server.why);
    tls_contexts late(credentials::from_files(own(left, right)));
    tls_contexts trusting(credentials::from_files(own(right, left)));
    SSL_CTX* const expired = late.connecting().value();
    here.end_at(left, std::chrono::system_clock::now() - 1min);
    const auto ended = certificates_in(content(left + "/certificate.pem"), "left").value();
    ASSERT_EQ(SSL_CTX_use_certificate(expired, ended.front().get()), 1);
    tls_pair ended_pair(expired, trusting.accepting().value());
    ended_pair.meet();
    EXPECT_EQ(told(ended_pair.server.why),
              "denied: the peer's certificate is refused: certificate has expired");
}

/// Two folders that trust each other's keys, and no authority.
class trusted_key_contexts : public tls_contexts_test {
protected:
    trusted_key_contexts() {
        make_key(one, {.name = "one", .self_signed = true});
        make_key(two, {.name = "two", .self_signed = true});
        (void)trust_authority(one, two);
        (void)trust_authority(two, one);
    }
    static bool has_met(const tls_pair& both) { return both.client.done && both.server.done; }

    const std::string one = here.with("one"), two = here.with("two");
};

TEST_F(trusted_key_contexts, two_folders_that_name_each_others_keys_meet_and_nobody_else) {
    const tls_pair both = met(one, two);
    ASSERT_TRUE(has_met(both)) << told(both.client.why) << "; " << told(both.server.why);
    const identity who = *verified_peer(both.server.ssl.get());
    EXPECT_EQ(who.key, credentials::from_folder(one)->self().key);
    EXPECT_EQ(who.name, to_text(who.key));
    make_key(here.with("three"), {.name = "three", .self_signed = true});
    (void)trust_authority(here.with("three"), two);
    for (const std::string& stranger : {here.with("three"), left}) {
        EXPECT_EQ(met(stranger, two).server.why.code(), errc::denied) << stranger;
        EXPECT_EQ(met(one, stranger).client.why.code(), errc::denied) << stranger;
    }
}

TEST_F(trusted_key_contexts, who_is_not_trusted_is_told_which_key_is_not_and_how_it_would_be) {
    const std::string three = here.with("three");
    make_key(three, {.name = "three", .self_signed = true});
    (void)trust_authority(three, two);
    const auto key_of = [](const std::string& folder) {
        return to_text(credentials::from_folder(folder)->self().key);
    };
    const auto refuses = [](const std::string& what) {
        return "denied: the peer's certificate is refused: " + what;
    };
    const auto refused = [](const std::string& what) {
        return "denied: the peer refuses us: " + what;
    };
    const std::string not_trusted = "its key is not among the trusted ones",
                      add = "; where it should be: amalgam key trust FOLDER ";
    const auto own_is_not = [&](const std::string& folder) {
        return refused("our key, which is self-signed, is not among those that it trusts" + add +
                       key_of(folder));
    };
    {  // The server trusts other keys.
        const tls_pair both = met(three, two);
        EXPECT_EQ(told(both.server.why), refuses(not_trusted + add + key_of(three)));
        EXPECT_EQ(told(both.client.why), own_is_not(three));
    }
    {  // The client trusts other keys, and who is certified shows it in vain.
        const tls_pair both = met(one, left);
        EXPECT_EQ(
            told(both.client.why),
            refuses(not_trusted + ", and who certified it is not asked here" + add + key_of(left)));
        EXPECT_EQ(told(both.server.why),
                  refused("it trusts neither our authority nor our key; where it should: amalgam "
                          "key trust FOLDER AUTHORITY, or, if it trusts keys, amalgam key trust "
                          "FOLDER " +
                          key_of(left)));
    }
    {  // The client trusts an authority.
        const tls_pair both = met(left, two);
        EXPECT_EQ(told(both.client.why),
                  refuses("it is self-signed, and here is trusted who an authority certified; "
                          "certify it: amalgam key new NAME --with AUTHORITY; or trust its key in "
                          "a folder without authorities: amalgam key trust FOLDER " +
                          key_of(two)));
        EXPECT_EQ(told(both.server.why), own_is_not(two));
    }
    EXPECT_EQ(ERR_peek_error(), 0u);
}

TEST_F(trusted_key_contexts, a_key_that_is_taken_out_is_refused_from_then_on) {
    const auto of_two = credentials::from_folder(two);
    tls_contexts client = of(one), server(of_two, &keep_sessions);
    last_session.reset();
    tls_pair before(client.connecting().value(), server.accepting().value());
    before.meet();
    ASSERT_TRUE(has_met(before)) << told(before.server.why);
    const openssl_ptr<SSL_SESSION> kept = std::move(last_session);
    ASSERT_NE(kept, nullptr);
    const auto begun = [&](SSL_SESSION* earlier) {
        tls_pair both(client.connecting().value(), server.accepting().value(), earlier);
        EXPECT_TRUE(both.client.go_on() && both.server.go_on());
        return both;
    };
    tls_pair slow = begun(nullptr), resumed = begun(kept.get());

    (void)revoke_key(one, two);
    ASSERT_TRUE(of_two->reload());
    for (SSL_SESSION* earlier : {static_cast<SSL_SESSION*>(nullptr), kept.get()}) {
        tls_pair after(client.connecting().value(), server.accepting().value(), earlier);
        after.meet();
        EXPECT_FALSE(after.server.done);
        EXPECT_EQ(after.server.why.code(), errc::denied) << told(after.server.why);
        EXPECT_EQ(SSL_session_reused(after.server.ssl.get()), 0);
    }
    // So are those that had begun.
    for (tls_pair* const each : {&slow, &resumed}) {
        each->meet();
        ASSERT_TRUE(each->server.done) << told(each->server.why);
        const auto who = verified_peer(each->server.ssl.get());
        EXPECT_EQ(who.code(), errc::denied);
        EXPECT_EQ(who.sentence(),
                  "the peer's certificate is refused: its key is no longer trusted");
    }
    EXPECT_EQ(SSL_session_reused(resumed.server.ssl.get()), 1);

    (void)trust_authority(two, one);
    ASSERT_TRUE(of_two->reload());
    tls_pair again(client.connecting().value(), server.accepting().value(), kept.get());
    again.meet();
    EXPECT_TRUE(has_met(again)) << told(again.server.why);
    EXPECT_EQ(SSL_session_reused(again.server.ssl.get()), 0);
}

TEST_F(tls_contexts_test, a_trusted_key_whose_certificate_is_not_valid_yet_is_refused) {
    const test_lab lab;
    const test_certificate early = lab.authority.issue({.starts = 1000, .ends = 2000});
    tls_contexts server(credentials::from_text({.certificate = pem_of(lab.node.made.get()),
                                                .key = pem_of(lab.node.key.get()),
                                                .trusted_keys = {fingerprint_of(*early.key)}}));
    const ssl_context_ptr client = bare_context(lab.authority, &early);
    tls_pair both(client.get(), server.accepting().value());
    both.meet();
    EXPECT_EQ(told(both.server.why),
              "denied: the peer's certificate is refused: certificate is not yet valid");
}

TEST_F(tls_contexts_test, a_trusted_key_whose_certificate_has_no_time_in_it_is_refused) {
    const test_lab lab;
    for (const auto field : {&X509_getm_notBefore, &X509_getm_notAfter}) {
        const test_certificate odd = lab.authority.issue();
        ASSERT_EQ(ASN1_STRING_set(field(odd.made.get()), "whenever", -1), 1);
        ASSERT_GT(X509_sign(odd.made.get(), lab.authority.key(), nullptr), 0);
        tls_contexts server(credentials::from_text({.certificate = pem_of(lab.node.made.get()),
                                                    .key = pem_of(lab.node.key.get()),
                                                    .trusted_keys = {fingerprint_of(*odd.key)}}));
        const ssl_context_ptr client = bare_context(lab.authority, &odd);
        tls_pair both(client.get(), server.accepting().value());
        both.meet();
        EXPECT_EQ(both.server.why.code(), errc::denied) << told(both.server.why);
    }
}

TEST_F(tls_contexts_test, a_trusted_key_names_its_owner_whatever_its_certificate_says) {
    // Its owner certifies himself.
    const lab_folder own;
    const std::string liar = own.add("admin", {.groups = {"operators"}});
    const key_fingerprint key = credentials::from_folder(liar)->self().key;
    tls_contexts server(credentials::from_files({.certificate = right + "/certificate.pem",
                                                 .key = right + "/key.pem",
                                                 .trusted_keys = {key}}));
    tls_contexts client(
        credentials::from_files({.certificate = liar + "/certificate.pem",
                                 .key = liar + "/key.pem",
                                 .trusted_keys = {credentials::from_folder(right)->self().key}}));
    tls_pair both(client.connecting().value(), server.accepting().value());
    ASSERT_TRUE(expect_host(both.client.ssl.get(), "127.0.0.1"));
    both.meet();
    ASSERT_TRUE(both.client.done && both.server.done);
    const identity who = *verified_peer(both.server.ssl.get());
    EXPECT_EQ(who.name, to_text(key));
    EXPECT_EQ(who.groups, std::vector<std::string>{});
    EXPECT_EQ(who.key, key);
    EXPECT_EQ(who.kind, identity_kind::certificate);
}

TEST_F(tls_contexts_test, who_shows_no_certificate_or_other_protocols_is_refused) {
    tls_contexts server = of(right);
    struct attempt {
        const char* what;
        void (*spoil)(SSL_CTX*);
        const char* expected;
    };
    const attempt all[] = {
        {"no certificate", [](SSL_CTX*) {}, "denied: the peer showed no certificate"},
        {"no protocol", [](SSL_CTX* c) { SSL_CTX_set_alpn_protos(c, nullptr, 0); },
         "unreachable: the peer does not speak Amalgam's protocol over TLS"},
        {"other protocol",
         [](SSL_CTX* c) {
             SSL_CTX_set_alpn_protos(c, reinterpret_cast<const unsigned char*>("\x02h2"), 3);
         },
         "unreachable: the peer does not speak Amalgam's protocol over TLS"},
        {"TLS 1.2", [](SSL_CTX* c) { SSL_CTX_set_max_proto_version(c, TLS1_2_VERSION); },
         "unreachable: the two sides have no version of TLS in common, expected TLS 1.3"},
    };
    for (const attempt& each : all) {
        const ssl_context_ptr client(SSL_CTX_new(TLS_client_method()));
        SSL_CTX_set_alpn_protos(client.get(),
                                reinterpret_cast<const unsigned char*>("\x09"
                                                                       "amalgam/1"),
                                10);
        each.spoil(client.get());
        tls_pair both(client.get(), server.accepting().value());
        both.meet();
        EXPECT_FALSE(both.server.done) << each.what;
        EXPECT_EQ(told(both.server.why), each.expected) << each.what;
    }
}

TEST_F(tls_contexts_test, a_server_that_names_no_protocol_is_not_taken_for_a_peer) {
    tls_contexts client = of(left);
    const ssl_context_ptr server(SSL_CTX_new(TLS_server_method()));
    const auto own = certificates_in(content(right + "/certificate.pem"), "right").value();
    const auto key = private_key_in(content(right + "/key.pem"), "right").value();
    SSL_CTX_use_certificate(server.get(), own.front().get());
    SSL_CTX_use_PrivateKey(server.get(), key.get());
    tls_pair both(client.connecting().value(), server.get());
    both.meet();
    ASSERT_TRUE(both.client.done) << told(both.client.why);
    const auto who = verified_peer(both.client.ssl.get());
    EXPECT_EQ(who.code(), errc::denied);
    EXPECT_EQ(who.sentence(), "the peer does not speak Amalgam's protocol over TLS");
}

TEST_F(tls_contexts_test, bytes_that_are_not_tls_are_told) {
    tls_contexts server = of(right);
    tls_end end(server.accepting().value());
    BIO* const in = BIO_new_mem_buf("GET / HTTP/1.1\r\n\r\n", -1);
    SSL_set_bio(end.ssl.get(), in, BIO_new(BIO_s_null()));
    SSL_set_accept_state(end.ssl.get());
    EXPECT_FALSE(end.go_on());
    EXPECT_EQ(told(end.why), "unreachable: the peer does not speak TLS");
}

}  // namespace
}  // namespace amalgam::detail
