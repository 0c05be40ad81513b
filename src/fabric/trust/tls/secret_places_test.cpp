#include "fabric/trust/tls/secret_places.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>
#include <malloc.h>

#include "fabric/trust/tls/tls_testing.hpp"

namespace amalgam::detail {
namespace {

/// Two ends of OpenSSL's own, joined in memory, and what one of them told of its secrets.
class told_pair {
public:
    explicit told_pair(SSL_CTX& context, const char* ciphers = "TLS_AES_128_GCM_SHA256") {
        current() = this;
        SSL_CTX_set_ciphersuites(&context, ciphers);
        SSL_CTX_set_keylog_callback(&context, [](const SSL* of, const char* line) {
            const std::string_view all(line);
            if (of != current()->client.get()) return;
            for (auto& [label, secret] : {std::pair<std::string_view, traffic_secret&>{
                                              "CLIENT_TRAFFIC_SECRET_0 ", current()->of_client},
                                          {"SERVER_TRAFFIC_SECRET_0 ", current()->of_server}})
                if (all.starts_with(label)) (void)secret.read_hex(all.substr(all.rfind(' ') + 1));
        });
        client.reset(SSL_new(&context));
        server.reset(SSL_new(&context));
        BIO *near_end = nullptr, *far_end = nullptr;
        if (BIO_new_bio_pair(&near_end, 0, &far_end, 0) != 1) throw std::bad_alloc();
        SSL_set_bio(client.get(), near_end, near_end);
        SSL_set_bio(server.get(), far_end, far_end);
        SSL_set_connect_state(client.get());
        SSL_set_accept_state(server.get());
        for (bool is_over = false; !is_over;) {
            const int at_client = SSL_do_handshake(client.get());
            is_over = SSL_do_handshake(server.get()) == 1 && at_client == 1;
            if (has_failed(*client, at_client)) throw std::runtime_error("no handshake");
        }
        ERR_clear_error();
        SSL_CTX_set_keylog_callback(&context, nullptr);
    }
    void teach(secret_places& all) { all.learn(client.get(), of_client, of_server); }
    bool is_read_by(const secret_places& all, SSL* end) {
        traffic_secret its_client, its_server;
        return all.read(end, of_client.size, its_client, its_server) &&
               its_client.size == of_client.size && its_client.bytes == of_client.bytes &&
               its_server.bytes == of_server.bytes;
    }

    openssl_ptr<SSL> client, server;
    traffic_secret of_client, of_server;

private:
    static bool has_failed(SSL& end, int how) {
        return how != 1 && SSL_get_error(&end, how) != SSL_ERROR_WANT_READ;
    }
    static told_pair*& current() {
        static told_pair* one;
        return one;
    }
};

class secret_places_test : public testing::Test {
protected:
    void SetUp() override {
        const auto block =
            std::unique_ptr<void, decltype(&std::free)>(std::malloc(100), &std::free);
        if (::malloc_usable_size(block.get()) < 100) GTEST_SKIP() << "another malloc()";
    }

    test_authority authority;
    test_certificate own = authority.issue();
    ssl_context_ptr context = bare_context(authority, &own);
    secret_places all;
};

TEST_F(secret_places_test, are_known_from_two_connections_and_read_from_any_other) {
    for (int i = 0; i < 2; ++i) {
        EXPECT_FALSE(all.are_known()) << i;
        told_pair(*context).teach(all);
    }
    ASSERT_TRUE(all.are_known());
    for (const char* each :
         {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}) {
        told_pair one(*context, each);
        EXPECT_TRUE(one.is_read_by(all, one.client.get())) << each;
        EXPECT_TRUE(one.is_read_by(all, one.server.get())) << each;
    }
}

TEST_F(secret_places_test, are_not_known_from_what_is_nowhere_or_elsewhere) {
    secret_places others;
    told_pair one(*context), two(*context);
    one.teach(all);
    all.learn(one.client.get(), one.of_server, one.of_client);  // The other way round.
    two.teach(all);
    two.teach(all);
    EXPECT_FALSE(all.are_known());
    others.learn(one.client.get(), two.of_client, two.of_server);
    one.teach(others);
    two.teach(others);
    EXPECT_FALSE(others.are_known());
}

TEST_F(secret_places_test, are_not_known_from_a_secret_that_is_in_several_places) {
    for (int i = 0; i < 2; ++i) {
        told_pair one(*context);
        // At the end, where there is only room.
        auto* const block = reinterpret_cast<unsigned char*>(one.client.get());
        const std::size_t bytes = ::malloc_usable_size(one.client.get());
        unsigned char before[32];
        std::copy(block + bytes - 32, block + bytes, before);
        std::copy_n(one.of_client.bytes.data(), 32, block + bytes - 32);
        one.teach(all);
        std::copy(before, before + 32, block + bytes - 32);
    }
    EXPECT_FALSE(all.are_known());
}

}  // namespace
}  // namespace amalgam::detail
