// The server's end for clients of HTTP, with OpenSSL's client at the other end, in memory.
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <amalgam/fabric/extension/tls_server.hpp>

#include "fabric/trust/tls/tls_testing.hpp"

namespace amalgam::detail {
namespace {

struct tls_client {
    openssl_ptr<SSL> ssl;
    BIO* from_server = BIO_new(BIO_s_mem());
    BIO* to_server = BIO_new(BIO_s_mem());

    explicit tls_client(SSL_CTX& context) : ssl(SSL_new(&context)) {
        SSL_set_bio(ssl.get(), from_server, to_server);
        SSL_set_connect_state(ssl.get());
    }
    std::string sent() const {
        char part[16384];
        const int got = BIO_read(to_server, part, sizeof part);
        return {part, got > 0 ? static_cast<std::size_t>(got) : 0};
    }
};

struct tls_server_end_test : testing::Test {
    test_lab lab;
    tls_server server{lab.trust, tls_server::clients::any};
    std::unique_ptr<tls_server_end> end = server.accept();
    ssl_context_ptr context{SSL_CTX_new(TLS_client_method())};
    tls_client client{*context};
    std::string plain, to_send;

    bool take(std::string_view what) { return end->take(what, plain, to_send).ok(); }
    void meet() {
        for (int i = 0; i < 4 && SSL_do_handshake(client.ssl.get()) != 1; ++i) {
            ASSERT_TRUE(take(client.sent()));
            BIO_write(client.from_server, to_send.data(), static_cast<int>(to_send.size()));
            to_send.clear();
        }
        ASSERT_TRUE(SSL_is_init_finished(client.ssl.get()));
        ASSERT_TRUE(take(client.sent()));
    }
};

TEST_F(tls_server_end_test, what_follows_the_clients_end_is_refused_and_not_kept) {
    meet();
    ASSERT_EQ(SSL_write(client.ssl.get(), "ask", 3), 3);
    SSL_shutdown(client.ssl.get());
    ASSERT_TRUE(take(client.sent()));
    EXPECT_EQ(plain, "ask");
    EXPECT_FALSE(take("more"));
    EXPECT_EQ(plain, "ask");
    // It may still be answered.
    end->put("answer", to_send);
    BIO_write(client.from_server, to_send.data(), static_cast<int>(to_send.size()));
    char told[16];
    EXPECT_EQ(SSL_read(client.ssl.get(), told, sizeof told), 6);
}

TEST_F(tls_server_end_test, who_speaks_an_older_tls_is_refused) {
    SSL_CTX_set_max_proto_version(context.get(), TLS1_2_VERSION);
    const tls_client older(*context);
    EXPECT_LE(SSL_do_handshake(older.ssl.get()), 0);
    EXPECT_FALSE(take(older.sent()));
}

}  // namespace
}  // namespace amalgam::detail
