// Keys that both ends were given: files, handshakes, and what becomes of them while running.
#include "fabric/trust/keys/pre_shared_keys.hpp"

#include <cstring>
#include <fstream>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/fabric/credentials.hpp>
#include <amalgam/fabric/key_folder.hpp>
#include <amalgam/fabric/signed_broadcast.hpp>

#include "fabric/trust/credentials/credential_store.hpp"
#include "fabric/trust/key_folders/lab_testing.hpp"
#include "fabric/trust/keys/new_file.hpp"
#include "fabric/trust/tls/tls_contexts.hpp"
#include "fabric/trust/tls/tls_session.hpp"

namespace amalgam::detail {
namespace {

using namespace std::chrono_literals;
using step = tls_session::state;

std::string line_of(const std::string& name, std::size_t bytes = 32, char digit = 'a') {
    return name + ":" + std::string(2 * bytes, digit) + "\n";
}

struct broken {
    const char* what;
    std::string text;
    const char* sentence;
};

TEST(pre_shared_keys, lines_become_keys_and_the_first_is_the_own_one) {
    const auto all = pre_shared_keys::in("node7:000102030405060708090A0b0c0d0e0f\r\n" +
                                             line_of("other.lab", 64, 'F') + line_of("z", 16),
                                         "text");
    ASSERT_TRUE(all) << all.sentence();
    ASSERT_EQ(all->all().size(), 3u);
    EXPECT_EQ(all->own().name, "node7");
    for (unsigned char i = 0; i < 16; ++i)
        EXPECT_EQ(all->own().secret[i], i);
    EXPECT_EQ(all->find("other.lab")->secret.size(), 64u);
    EXPECT_EQ(all->find("other.lab")->secret[63], 0xff);
    EXPECT_EQ(all->find("node"), nullptr);
}

TEST(pre_shared_keys, what_is_no_key_gets_a_sentence_that_says_nothing_of_it) {
    const std::string good = line_of("a", 32, '7');
    const broken all[] = {
        {"nothing", "", "has no pre-shared key"},
        {"cut", good.substr(0, good.size() - 1), "ends within line 1"},
        {"an empty line", good + "\n", "line 2 of"},
        {"no name", ":" + std::string(64, '7') + "\n", "line 1 of"},
        {"no key", "a\n", "line 1 of"},
        {"short", line_of("a", 15, '7'), "32 to 128 hexadecimal digits"},
        {"long", line_of("a", 65, '7'), "32 to 128 hexadecimal digits"},
        {"half a byte", "a:7" + std::string(64, '7') + "\n", "line 1 of"},
        {"no digit", "a:x" + std::string(63, '7') + "\n", "line 1 of"},
        {"a wrong name", line_of("a b", 32, '7'), "letters, digits and ._@-"},
        {"a long name", line_of(std::string(65, 'a'), 32, '7'), "line 1 of"},
        {"twice", good + line_of("b", 32, '7') + good, "two keys of the name a"},
        {"a fingerprint", line_of(std::string(64, 'a')), "no fingerprint"},
    };
    for (const broken& each : all) {
        const auto got = pre_shared_keys::in(each.text, "\"shared.keys\"");
        ASSERT_FALSE(got) << each.what;
        EXPECT_EQ(got.code(), errc::invalid) << each.what;
        EXPECT_NE(got.sentence().find(each.sentence), std::string::npos)
            << each.what << ": " << got.sentence();
        EXPECT_EQ(got.sentence().find("777"), std::string::npos) << got.sentence();
    }
    std::string many;
    for (std::size_t i = 0; i < pre_shared_keys::most_keys; ++i)
        many += line_of("k" + std::to_string(i), 16);
    EXPECT_TRUE(pre_shared_keys::in(many, "text"));
    EXPECT_FALSE(pre_shared_keys::in(many + line_of("one-more"), "text"));
}

/// Folders of pre-shared keys.
class shared_folders : public testing::Test {
protected:
    std::string add(const std::string& name) const {
        make_key(here.with(name), {.name = name, .shared = true});
        return here.with(name);
    }
    static std::string file(const std::string& folder) { return folder + "/shared.keys"; }
    static void expect_error(errc code, const char* part, auto what) {
        try {
            what();
            FAIL() << "expected: " << part;
        } catch (const error& why) {
            EXPECT_EQ(why.code(), code) << why.what();
            EXPECT_NE(std::string(why.what()).find(part), std::string::npos) << why.what();
        }
    }

    const temp_folder here;
};

TEST_F(shared_folders, a_new_key_is_random_and_nobody_elses_to_read) {
    const std::string one = add("one"), two = add("two");
    struct stat about {};
    ASSERT_EQ(::stat(file(one).c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 07777, 0600u);
    const std::string text = content(file(one));
    EXPECT_TRUE(text.starts_with("one:")) << text;
    EXPECT_EQ(text.size(), 4 + 64 + 1u);
    EXPECT_NE(text.substr(4), content(file(two)).substr(4));
    const auto mine = credentials::from_folder(one);
    EXPECT_EQ(mine->self().kind, identity_kind::pre_shared);
    EXPECT_EQ(mine->self().name, "one");
    EXPECT_EQ(mine->explain(), "proves itself by the pre-shared key one; trusts who has it");
    EXPECT_EQ(mine->expires(), std::chrono::system_clock::time_point::max());
    const std::string shown = describe_key(one);
    EXPECT_NE(shown.find("one, 256 bits"), std::string::npos) << shown;
    EXPECT_EQ(shown.find(text.substr(4, 8)), std::string::npos) << shown;
}

TEST_F(shared_folders, a_file_that_others_can_read_is_refused) {
    const std::string one = add("one");
    ::chmod(file(one).c_str(), 0640);
    const auto got = credentials::try_from_folder(one);
    EXPECT_EQ(got.code(), errc::denied);
    EXPECT_NE(got.sentence().find("chmod 600 " + file(one)), std::string::npos) << got.sentence();
}

TEST_F(shared_folders, a_file_that_everybody_may_replace_is_refused) {
    const std::string one = add("one"), two = add("two");
    ::chmod(one.c_str(), 0777);
    const auto got = credentials::try_from_folder(one);
    EXPECT_EQ(got.code(), errc::denied);
    EXPECT_NE(got.sentence().find("chmod o-w " + one), std::string::npos) << got.sentence();
    expect_error(errc::denied, "written by everybody", [&] { (void)trust_authority(two, one); });
    ::chmod(one.c_str(), 01777);  // As /tmp is.
    EXPECT_TRUE(credentials::try_from_folder(one));
}

TEST_F(shared_folders, keys_of_others_are_accepted_and_removed_by_name) {
    const std::string one = add("one"), two = add("two"), three = add("three");
    EXPECT_NE(trust_authority(one, two).find("accepts the pre-shared key two"), std::string::npos);
    (void)trust_authority(one, file(three));
    EXPECT_NE(trust_authority(one, two).find("already"), std::string::npos);
    EXPECT_EQ(content(file(one)).size(), content(file(two)).size() + content(file(three)).size() +
                                             std::string("one:").size() + 65);
    EXPECT_EQ(credentials::from_folder(one)->explain(),
              "proves itself by the pre-shared key one; trusts who has it or one of 2 others");
    (void)trust_authority(three, one);  // Its own key only, not those that it accepts.
    EXPECT_EQ(content(file(three)).find("two"), std::string::npos);

    const std::string before = content(file(three));
    expect_error(errc::not_found, "no key by the name of \"two\"",
                 [&] { (void)revoke_key("two", three); });
    expect_error(errc::invalid, "is the own key", [&] { (void)revoke_key("three", three); });
    EXPECT_EQ(content(file(three)), before);
    (void)revoke_key("two", one);
    EXPECT_EQ(content(file(one)).find("two"), std::string::npos);
    (void)revoke_key(three, one);
    EXPECT_EQ(content(file(one)).find("three"), std::string::npos);
    EXPECT_TRUE(credentials::try_from_folder(one));
}

TEST_F(shared_folders, nothing_is_replaced_unless_told_to) {
    const std::string one = add("one"), two = add("two");
    (void)trust_authority(one, two);
    expect_error(errc::in_use, "--force", [&] { add("one"); });
    const std::string before = content(file(one));
    make_key(one, {.name = "one", .shared = true, .overwrite = true});
    const std::string after = content(file(one));
    EXPECT_EQ(after.substr(69), before.substr(69)) << "what it accepts stays";
    EXPECT_NE(after.substr(0, 69), before.substr(0, 69));
    // A key of another value does not take a name that is taken.
    (void)trust_authority(two, one);
    make_key(one, {.name = "one", .shared = true, .overwrite = true});
    expect_error(errc::in_use, "another key by the name", [&] { (void)trust_authority(two, one); });
    expect_error(errc::in_use, "accepts another key",
                 [&] { make_key(one, {.name = "two", .shared = true, .overwrite = true}); });
}

TEST_F(shared_folders, a_file_that_is_full_takes_no_more_and_stays_as_it_is) {
    const std::string one = add("one"), two = add("two");
    std::string all = content(file(one));
    for (std::size_t i = 1; i < pre_shared_keys::most_keys; ++i)
        all += line_of("k" + std::to_string(i), 16);
    write_file(file(one), all, 0600, true);
    expect_error(errc::invalid, "takes no more", [&] { (void)trust_authority(one, two); });
    EXPECT_EQ(content(file(one)), all);
}

TEST_F(shared_folders, a_folder_has_one_kind_of_credentials) {
    const lab_folder lab;
    const std::string node = lab.add("node"), one = add("one");
    expect_error(errc::in_use, "one kind",
                 [&] { make_key(node, {.name = "node", .shared = true, .overwrite = true}); });
    expect_error(errc::in_use, "one kind",
                 [&] { make_key(one, {.name = "one", .overwrite = true}); });
    expect_error(errc::in_use, "one kind",
                 [&] { sign_key(node, lab.lab, {.output = one, .overwrite = true}); });
    expect_error(errc::invalid, "no host and no group", [&] {
        make_key(here.with("x"), {.name = "x", .hosts = {"a.lab"}, .shared = true});
    });
    std::ofstream(file(node)) << content(file(one));
    ::chmod(file(node).c_str(), 0600);
    const auto both = credentials::try_from_folder(node);
    EXPECT_EQ(both.code(), errc::invalid);
    EXPECT_NE(both.sentence().find("one kind"), std::string::npos) << both.sentence();
    const auto parts = credentials::try_from_text(
        {.certificate = content(node + "/certificate.pem"), .shared_keys = content(file(one))});
    EXPECT_EQ(parts.code(), errc::invalid);
}

TEST_F(shared_folders, broadcasts_are_not_signed_by_them) {
    const auto mine = credentials::from_folder(add("one"));
    expect_error(errc::invalid, "expected a certificate",
                 [&] { (void)sign_broadcasts(nullptr, mine); });
}

/// The two ends of a connection over a pair of sockets.
struct shared_pair {
    shared_pair(tls_contexts& from, tls_contexts& to) {
        int both[2];
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both), 0);
        sockets[0].reset(both[0]);
        sockets[1].reset(both[1]);
        client = std::make_unique<tls_session>(*from.connecting().value(),
                                               tls_session::side::connecting, both[0], *record);
        server = std::make_unique<tls_session>(*to.accepting().value(),
                                               tls_session::side::accepting, both[1], *record);
    }
    /// Until neither goes on.
    void meet() {
        for (int i = 0; i < 20; ++i) {
            if (of_client == step::waiting) of_client = client->shake_hands();
            if (of_server == step::waiting) of_server = server->shake_hands();
        }
        // What the other end thought of the last message.
        char some;
        const iovec into{&some, 1};
        if (of_client == step::complete && of_server == step::failed) {
            EXPECT_EQ(client->read({&into, 1}, false), -1);
            of_client = step::failed;
        }
    }
    bool met() const { return of_client == step::complete && of_server == step::complete; }
    std::string told() const { return client->why().sentence + "; " + server->why().sentence; }

    unique_fd sockets[2];
    std::unique_ptr<tls_record> record = std::make_unique<tls_record>();
    std::unique_ptr<tls_session> client, server;
    step of_client = step::waiting, of_server = step::waiting;
};

class pre_shared_proof : public shared_folders {
protected:
    shared_pair met(const std::string& from, const std::string& to) {
        tls_contexts client(credentials::from_folder(from)), server(credentials::from_folder(to));
        shared_pair both(client, server);
        both.meet();
        return both;
    }
    static void expect_refused(const shared_pair& both, const char* client, const char* server) {
        EXPECT_EQ(both.of_client, step::failed);
        EXPECT_EQ(both.of_server, step::failed);
        EXPECT_EQ(both.client->why().what.code, errc::denied) << both.told();
        EXPECT_EQ(both.server->why().what.code, errc::denied) << both.told();
        EXPECT_NE(both.client->why().sentence.find(client), std::string::npos) << both.told();
        EXPECT_NE(both.server->why().sentence.find(server), std::string::npos) << both.told();
    }
};

TEST_F(pre_shared_proof, two_that_have_the_same_key_know_each_other_by_its_name) {
    const std::string one = add("one");
    shared_pair both = met(one, one);
    ASSERT_TRUE(both.met()) << both.told();
    const identity expected{.kind = identity_kind::pre_shared, .name = "one"};
    EXPECT_EQ(both.client->peer(), expected);
    EXPECT_EQ(both.server->peer(), expected);
    SSL* const ssl = both.client->native();
    EXPECT_STREQ(SSL_get_version(ssl), "TLSv1.3");
    EXPECT_STREQ(SSL_get_cipher_name(ssl), "TLS_AES_128_GCM_SHA256");
    EXPECT_EQ(SSL_get0_peer_certificate(ssl), nullptr);
    EVP_PKEY* of_peer = nullptr;
    EXPECT_EQ(SSL_get_peer_tmp_key(ssl, &of_peer), 1) << "a key exchange took place";
    EVP_PKEY_free(of_peer);
    EXPECT_FALSE(both.client->ticket()) << "what ends with the key must not go on without it";
    // Both agree on what sealed packets take for keys.
    std::byte ours[32], theirs[32];
    EXPECT_TRUE(both.client->export_key("test", {}, ours));
    EXPECT_TRUE(both.server->export_key("test", {}, theirs));
    EXPECT_EQ(std::memcmp(ours, theirs, sizeof ours), 0);
}

TEST_F(pre_shared_proof, callers_of_one_port_are_told_apart_by_their_keys) {
    const std::string server = add("server"), alice = add("alice"), bob = add("bob");
    (void)trust_authority(server, alice);
    (void)trust_authority(server, bob);
    for (const std::string& each : {alice, bob, server}) {
        shared_pair both = met(each, server);
        ASSERT_TRUE(both.met()) << both.told();
        EXPECT_EQ(both.server->peer(), credentials::from_folder(each)->self());
    }
    EXPECT_FALSE(met(alice, bob).met());
    EXPECT_FALSE(met(server, alice).met()) << "who connects uses his own key only";
}

TEST_F(pre_shared_proof, a_wrong_key_and_an_unknown_name_look_the_same_from_outside) {
    const std::string server = add("server"), stranger = add("stranger");
    const lab_folder elsewhere;
    make_key(elsewhere.with("server"), {.name = "server", .shared = true});
    shared_pair wrong = met(elsewhere.with("server"), server), unknown = met(stranger, server);
    expect_refused(wrong, "it does not have our pre-shared key server, or has another",
                   "the peer has another key by the name of server");
    expect_refused(unknown, "it does not have our pre-shared key stranger, or has another",
                   "the peer has the pre-shared key stranger, which we do not have");
}

TEST_F(pre_shared_proof, a_key_works_under_its_own_name_only) {
    const std::string server = add("server"), renamed = here.with("renamed");
    make_folder(renamed);
    write_file(renamed + "/shared.keys", "other" + content(file(server)).substr(6), 0600, false);
    expect_refused(met(renamed, server), "it does not have our pre-shared key other",
                   "the peer has the pre-shared key other, which we do not have");
}

TEST_F(pre_shared_proof, the_key_that_an_unknown_name_gets_cannot_be_guessed) {
    const std::string server = add("server"), guess = here.with("guess");
    make_folder(guess);
    write_file(guess + "/shared.keys", line_of("guess", 32, '0'), 0600, false);
    expect_refused(met(guess, server), "it does not have our pre-shared key guess",
                   "the peer has the pre-shared key guess, which we do not have");
}

TEST_F(pre_shared_proof, a_server_that_has_the_key_and_speaks_another_protocol_is_refused) {
    const auto mine = credentials::from_folder(add("one"));
    tls_contexts from(mine), to(mine);
    SSL_CTX* const other = to.accepting().value();
    SSL_CTX_set_alpn_select_cb(other, nullptr, nullptr);
    shared_pair both(from, to);
    both.meet();
    EXPECT_EQ(both.of_client, step::failed);
    EXPECT_NE(both.client->why().sentence.find("does not speak Amalgam's protocol"),
              std::string::npos)
        << both.told();
}

TEST_F(pre_shared_proof, nobody_gives_tickets_and_those_of_others_are_not_kept) {
    const auto mine = credentials::from_folder(add("one"));
    for (const bool gives : {false, true}) {
        tls_contexts from(mine), to(mine);
        SSL_CTX* const server = to.accepting().value();
        if (gives) {
            SSL_CTX_set_session_cache_mode(server, SSL_SESS_CACHE_SERVER);
            SSL_CTX_set_num_tickets(server, 1);
        }
        shared_pair both(from, to);
        both.meet();
        ASSERT_TRUE(both.met()) << both.told();
        char some = 0;
        EXPECT_EQ(::recv(both.sockets[0].get(), &some, 1, MSG_PEEK | MSG_DONTWAIT), gives ? 1 : -1);
        const iovec into{&some, 1};
        EXPECT_EQ(both.client->read({&into, 1}, false), -1);
        EXPECT_FALSE(both.client->ticket());
    }
}

/// A TLS client that sends data before anybody has answered.
SSL_SESSION* early_session = nullptr;
int use_early_session(SSL*, const EVP_MD*, const unsigned char** name, std::size_t* bytes,
                      SSL_SESSION** session) {
    SSL_SESSION_up_ref(early_session);
    *session = early_session;
    *name = reinterpret_cast<const unsigned char*>("one");
    *bytes = 3;
    return 1;
}

TEST_F(pre_shared_proof, data_sent_before_the_handshake_is_not_taken) {
    const auto mine = credentials::from_folder(add("one"));
    tls_contexts contexts(mine);
    int both[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both), 0);
    const unique_fd left(both[0]), right(both[1]);
    const ssl_context_ptr context(SSL_CTX_new(TLS_client_method()));
    SSL_CTX_set_psk_use_session_callback(context.get(), &use_early_session);
    const unsigned char protocol[] =
        "\x09"
        "amalgam/1";
    SSL_CTX_set_alpn_protos(context.get(), protocol, sizeof protocol - 1);
    const openssl_ptr<SSL> client(SSL_new(context.get()));
    SSL_set_fd(client.get(), both[0]);
    const openssl_ptr<SSL_SESSION> session(SSL_SESSION_new());
    const auto secret = mine->store().in_force()->shared()->own().secret;
    constexpr unsigned char aes_128_gcm_sha256[] = {0x13, 0x01};
    SSL_SESSION_set1_master_key(session.get(), secret.data(), secret.size());
    SSL_SESSION_set_cipher(session.get(), SSL_CIPHER_find(client.get(), aes_128_gcm_sha256));
    SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION);
    SSL_SESSION_set_max_early_data(session.get(), 1000);
    SSL_SESSION_set1_alpn_selected(session.get(), protocol + 1, sizeof protocol - 2);
    early_session = session.get();
    std::size_t wrote = 0;
    ASSERT_EQ(SSL_write_early_data(client.get(), "early", 5, &wrote), 1);
    const auto record = std::make_unique<tls_record>();
    tls_session server(*contexts.accepting().value(), tls_session::side::accepting, both[1],
                       *record);
    step of_server = step::waiting;
    for (int i = 0; i < 20 && of_server == step::waiting; ++i) {
        of_server = server.shake_hands();
        (void)SSL_do_handshake(client.get());
    }
    EXPECT_EQ(SSL_get_early_data_status(client.get()), SSL_EARLY_DATA_REJECTED);
    char some[10];
    const iovec into{some, sizeof some};
    if (of_server == step::complete) {
        EXPECT_EQ(server.read({&into, 1}, false), -1);
    }
    early_session = nullptr;
}

TEST_F(pre_shared_proof, a_peer_with_a_certificate_and_one_with_a_key_do_not_meet) {
    const lab_folder lab;
    const std::string node = lab.add("node"), one = add("one");
    expect_refused(met(one, node), "the peer has a certificate, where we have a pre-shared key",
                   "the peer refuses us");
    expect_refused(met(node, one), "perhaps it has a pre-shared key",
                   "the peer offers no pre-shared key, and we have no certificate");
}

TEST_F(pre_shared_proof, a_key_that_is_removed_or_changed_while_running_is_refused_from_then_on) {
    const std::string server = add("server"), alice = add("alice"), bob = add("bob");
    (void)trust_authority(server, alice);
    const auto of_server = credentials::from_folder(server);
    tls_contexts at_server(of_server), at_alice(credentials::from_folder(alice)),
        at_bob(credentials::from_folder(bob));
    shared_pair before(at_alice, at_server);
    before.meet();
    ASSERT_TRUE(before.met()) << before.told();
    shared_pair under_way(at_alice, at_server);

    (void)revoke_key("alice", server);
    (void)trust_authority(server, bob);
    ASSERT_TRUE(of_server->reload());
    shared_pair removed(at_alice, at_server), added(at_bob, at_server);
    removed.meet();
    added.meet();
    expect_refused(removed, "does not have our pre-shared key alice", "which we do not have");
    EXPECT_TRUE(added.met()) << added.told();
    // One begun before uses no freed memory, and its key is gone before it is complete.
    under_way.meet();
    EXPECT_EQ(under_way.of_server, step::failed);
    EXPECT_NE(under_way.told().find("was removed or replaced within the handshake"),
              std::string::npos)
        << under_way.told();

    // What cannot be used changes nothing.
    const std::string text = content(file(server));
    std::ofstream(file(server)) << text.substr(0, text.size() - 20);
    EXPECT_EQ(of_server->reload().code(), errc::invalid);
    std::ofstream(file(server)).close();
    EXPECT_EQ(of_server->reload().code(), errc::invalid);
    ::unlink(file(server).c_str());
    EXPECT_EQ(of_server->reload().code(), errc::not_found);
    shared_pair still(at_bob, at_server);
    still.meet();
    EXPECT_TRUE(still.met()) << still.told();
}

TEST_F(pre_shared_proof, files_that_change_are_seen_within_the_interval) {
    const std::string server = add("server"), alice = add("alice");
    auto store = credential_store::of_files({.shared_keys = file(server)}, false).value();
    const auto before = store->in_force();
    (void)trust_authority(server, alice);
    const auto now = credential_store::steady::now();
    const auto after = store->current(now + 2s);
    EXPECT_NE(before, after);
    EXPECT_NE(after->shared()->find("alice"), nullptr);
}

}  // namespace
}  // namespace amalgam::detail
