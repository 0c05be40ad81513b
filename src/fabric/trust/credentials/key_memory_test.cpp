// What is left of a private key in the memory of a process that has loaded it.
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/fabric/temporary_key.hpp>

#include "dumped_memory.hpp"
#include "emulated.hpp"
#include "fabric/trust/credentials/credential_store.hpp"
#include "fabric/trust/key_folders/lab_testing.hpp"
#include "fabric/trust/keys/pre_shared_keys.hpp"
#include "fabric/trust/tls/tls_contexts.hpp"
#include "fabric/trust/tls/tls_session.hpp"

namespace amalgam::detail {
namespace {

/// The part of a file's text that only its private key decides.
hidden_bytes secret_text_of(const std::string& path, std::size_t from, std::size_t size) {
    char text[4096] = {};
    const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT_GT(::read(file.get(), text, sizeof text), static_cast<ssize_t>(from + size));
    const hidden_bytes hidden(std::string_view(text, sizeof text).substr(from, size));
    OPENSSL_cleanse(text, sizeof text);
    return hidden;
}

constexpr std::size_t first_line = sizeof "-----BEGIN PRIVATE KEY-----\n" - 1;

TEST(key_memory, the_search_finds_what_is_there) {
    const std::string plain = "something that nobody else in this process says";
    std::string reversed(plain.rbegin(), plain.rend());
    const hidden_bytes hidden(plain);
    EXPECT_FALSE(places_of(hidden).empty());
}

TEST(key_memory, no_text_of_a_loaded_key_is_left_anywhere) {
    const lab_folder here;
    for (const key_algorithm each : {key_algorithm::ed25519, key_algorithm::p256}) {
        const std::string name = each == key_algorithm::p256 ? "p256" : "ed25519";
        const std::string folder = here.add(name, {.algorithm = each});
        // Ed25519: the end of the one line. P-256: of the first, where the number begins.
        const hidden_bytes text = secret_text_of(folder + "/key.pem", first_line + 40, 22);
        const auto loaded = credentials::from_folder(folder);
        tls_contexts contexts(loaded);
        (void)contexts.accepting();
        ASSERT_TRUE(loaded->reload());
        for (const mapping& found : places_of(text))
            ADD_FAILURE() << name << ": the key's text is in " << found.name;
    }
}

TEST(key_memory, a_loaded_key_is_only_where_no_core_dump_has_it) {
    if (is_emulated()) GTEST_SKIP() << "qemu makes up its own /proc/self/smaps";
    if (keeps_freed_memory) GTEST_SKIP() << "sanitizers do not give freed memory out again";
    if (CRYPTO_secure_malloc_initialized() == 0) use_secure_heap();
    ASSERT_EQ(CRYPTO_secure_malloc_initialized(), 1);
    const lab_folder here;
    const std::string folder = here.add("node");
    std::string seed(32, '\0');
    {
        const secret_text text = read_secret_file(folder + "/key.pem").value();
        const auto key = private_key_in(text.text(), "key").value();
        std::size_t size = seed.size();
        ASSERT_EQ(EVP_PKEY_get_raw_private_key(
                      key.get(), reinterpret_cast<unsigned char*>(seed.data()), &size),
                  1);
    }
    const hidden_bytes hidden(seed);
    OPENSSL_cleanse(seed.data(), seed.size());
    const auto loaded = credentials::from_folder(folder);
    tls_contexts contexts(loaded);
    (void)contexts.connecting();
    const auto places = places_of(hidden);
    EXPECT_FALSE(places.empty());
    for (const mapping& found : places)
        EXPECT_FALSE(found.in_core_dumps) << found.name;
}

TEST(key_memory, a_temporary_key_leaves_no_text_and_is_only_where_no_core_dump_has_it) {
    if (is_emulated()) GTEST_SKIP() << "qemu makes up its own /proc/self/smaps";
    if (keeps_freed_memory) GTEST_SKIP() << "sanitizers do not give freed memory out again";
    const temporary_key own("worker");
    const auto loaded = own.trusting({own.fingerprint()});
    ASSERT_EQ(CRYPTO_secure_malloc_initialized(), 1);
    tls_contexts contexts(loaded);
    EVP_PKEY* const key = SSL_CTX_get0_privatekey(contexts.connecting().value());
    std::string seed(32, '\0');
    std::size_t size = seed.size();
    ASSERT_EQ(
        EVP_PKEY_get_raw_private_key(key, reinterpret_cast<unsigned char*>(seed.data()), &size), 1);
    const hidden_bytes number(seed);
    OPENSSL_cleanse(seed.data(), seed.size());
    const hidden_bytes text = [key] {
        const secret_text pem = to_pem(*key);
        return hidden_bytes(pem.text().substr(first_line + 40, 22));
    }();
    for (const mapping& found : places_of(text))
        ADD_FAILURE() << "the key's text is in " << found.name;
    const auto places = places_of(number);
    EXPECT_FALSE(places.empty());
    for (const mapping& found : places)
        EXPECT_FALSE(found.in_core_dumps) << found.name;
}

/// Both ends of a connection over a pair of sockets.
struct shared_pair {
    shared_pair(tls_contexts& from, tls_contexts& to) {
        int both[2];
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both), 0);
        left.reset(both[0]);
        right.reset(both[1]);
        using side = tls_session::side;
        client.emplace(*from.connecting().value(), side::connecting, both[0], *record);
        server.emplace(*to.accepting().value(), side::accepting, both[1], *record);
        using state = tls_session::state;
        auto one = state::waiting, other = one;
        for (int i = 0; i < 20; ++i) {
            if (one == state::waiting) one = client->shake_hands();
            if (other == state::waiting) other = server->shake_hands();
        }
        met = one == state::complete && other == state::complete;
    }
    unique_fd left, right;
    std::unique_ptr<tls_record> record = std::make_unique<tls_record>();
    std::optional<tls_session> client, server;
    bool met = false;
};

/// What TLS derives from a pre-shared key alone (RFC 8446, 7.1), made in another process.
hidden_bytes early_secret_of(const pre_shared_keys::key& from) {
    unsigned char early[32] = {};
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const unique_fd out(ends[0]), in(ends[1]);
    constexpr unsigned char salt[32] = {};
    const pid_t child = ::fork();
    if (child == 0) {
        unsigned bytes = sizeof early;
        ::HMAC(EVP_sha256(), salt, sizeof salt, from.secret.data(), from.secret.size(), early,
               &bytes);
        ::_exit(::write(in.get(), early, sizeof early) == sizeof early ? 0 : 1);
    }
    EXPECT_EQ(::read(out.get(), early, sizeof early), static_cast<ssize_t>(sizeof early));
    EXPECT_EQ(::waitpid(child, nullptr, 0), child);
    const hidden_bytes hidden({reinterpret_cast<const char*>(early), sizeof early});
    OPENSSL_cleanse(early, sizeof early);
    return hidden;
}

class pre_shared_memory : public testing::Test {
protected:
    void SetUp() override {
        if (is_emulated()) GTEST_SKIP() << "qemu makes up its own /proc/self/smaps";
        if (keeps_freed_memory) GTEST_SKIP() << "sanitizers do not give freed memory out again";
        make_key(here.with("one"), {.name = "one", .shared = true});
        make_key(here.with("other"), {.name = "one", .shared = true});
        mine = credentials::from_folder(here.with("one"));
        of_mine.emplace(mine);
    }
    const pre_shared_keys::key& own() const { return mine->store().in_force()->shared()->own(); }

    const temp_folder here;
    std::shared_ptr<const credentials> mine;
    std::optional<tls_contexts> of_mine;
};

TEST_F(pre_shared_memory, after_handshakes_a_key_is_only_where_no_core_dump_has_it) {
    const hidden_bytes text = secret_text_of(here.with("one") + "/shared.keys", 4, 60);
    const hidden_bytes number(
        {reinterpret_cast<const char*>(own().secret.data()), own().secret.size()});
    const shared_pair both(*of_mine, *of_mine);
    ASSERT_TRUE(both.met) << both.client->why().sentence << both.server->why().sentence;
    for (const mapping& found : places_of(text))
        ADD_FAILURE() << "the key's text is in " << found.name;
    const auto places = places_of(number);
    EXPECT_FALSE(places.empty());
    for (const mapping& found : places)
        EXPECT_FALSE(found.in_core_dumps) << found.name;
}

TEST_F(pre_shared_memory, after_handshakes_nothing_is_left_that_proves_as_much_as_the_key) {
    const hidden_bytes early = early_secret_of(own());
    const shared_pair both(*of_mine, *of_mine);
    ASSERT_TRUE(both.met) << both.client->why().sentence << both.server->why().sentence;
    for (const mapping& found : places_of(early))
        ADD_FAILURE() << "it is in " << found.name;
}

TEST_F(pre_shared_memory, neither_is_it_of_a_key_that_is_accepted_beside_the_own_one) {
    make_key(here.with("server"), {.name = "server", .shared = true});
    (void)trust_authority(here.with("server"), here.with("one"));
    const hidden_bytes early = early_secret_of(own());
    tls_contexts of_server(credentials::from_folder(here.with("server")));
    const shared_pair both(*of_mine, of_server);
    ASSERT_TRUE(both.met) << both.client->why().sentence << both.server->why().sentence;
    for (const mapping& found : places_of(early))
        ADD_FAILURE() << "it is in " << found.name;
}

TEST_F(pre_shared_memory, neither_is_it_after_handshakes_that_failed) {
    const hidden_bytes early = early_secret_of(own());
    tls_contexts of_other(credentials::from_folder(here.with("other")));
    for (const bool as_server : {false, true}) {
        const shared_pair both(as_server ? of_other : *of_mine, as_server ? *of_mine : of_other);
        EXPECT_FALSE(both.met);
    }
    for (const mapping& found : places_of(early))
        ADD_FAILURE() << "it is in " << found.name;
}

}  // namespace
}  // namespace amalgam::detail
