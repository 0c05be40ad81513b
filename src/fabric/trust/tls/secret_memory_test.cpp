// Where the secrets of a connection that stands are in the memory of its process.
#include "fabric/trust/tls/secret_memory.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/detail/text.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "dumped_memory.hpp"
#include "emulated.hpp"
#include "fabric/trust/tls/tls_session.hpp"
#include "fabric/trust/tls/tls_testing.hpp"

namespace amalgam::detail {
namespace {

using side = tls_session::side;
using state = tls_session::state;

enum kind { of_client, of_server, exporter, master, handshaking, kinds };
constexpr const char* names[kinds] = {
    "what the client sends is protected by", "what the server sends is protected by",
    "others are exported from", "the master secret", "the secret of the handshake"};

constexpr std::string_view label = "EXPORTER-test";
constexpr std::string_view context_of_export = "some context";

/// What the other process has found.
struct report {
    std::array<unsigned char, 48> hidden[kinds];
    std::uint8_t size = 0;
    std::array<std::byte, 32> exported;
};

/// OpenSSL alone, at the other end of a connection, in a process of its own.
class other_process {
public:
    other_process(const test_authority& authority, const test_certificate& own, side which,
                  const char* cipher) {
        int sockets[2], pipes[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0 ||
            ::pipe2(pipes, O_CLOEXEC) != 0)
            throw std::runtime_error("no sockets");
        socket_.reset(sockets[0]);
        told_.reset(pipes[0]);
        child_ = ::fork();
        if (child_ == 0) {
            ::close(sockets[0]);
            const bool done = run(authority, own, which, cipher, sockets[1], pipes[1]);
            ::_exit(done ? 0 : 1);
        }
        ::close(sockets[1]);
        ::close(pipes[1]);
        ::fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
    }
    ~other_process() {
        socket_.reset();
        int status = -1;
        EXPECT_EQ(::waitpid(child_, &status, 0), child_);
        EXPECT_EQ(status, 0);
    }
    int socket() const noexcept { return socket_.get(); }
    report told() const {
        report made;
        EXPECT_EQ(::read(told_.get(), &made, sizeof made), static_cast<ssize_t>(sizeof made));
        return made;
    }
    void wait() const {
        pollfd one{socket_.get(), POLLIN, 0};
        (void)::poll(&one, 1, -1);
    }

private:
    static inline traffic_secret secrets[3];

    static void hear(const SSL*, const char* line) {
        const std::string_view all(line);
        const auto digits = all.substr(all.rfind(' ') + 1);
        if (all.starts_with("CLIENT_TRAFFIC_SECRET_0 ")) secrets[of_client].read_hex(digits);
        if (all.starts_with("SERVER_TRAFFIC_SECRET_0 ")) secrets[of_server].read_hex(digits);
        if (all.starts_with("EXPORTER_SECRET ")) secrets[exporter].read_hex(digits);
    }
    /// Those that OpenSSL does not tell stand in its SSL, at known distances before one that it
    /// does.
    static const unsigned char* in_ssl(SSL* ssl, std::ptrdiff_t before) {
        const std::span whole(reinterpret_cast<const unsigned char*>(ssl),
                              ::malloc_usable_size(ssl));
        const auto known = secrets[of_client].value();
        const auto at = std::search(whole.begin(), whole.end(), known.begin(), known.end());
        return at == whole.end() ? nullptr : &*at - before * EVP_MAX_MD_SIZE;
    }
    static bool run(const test_authority& authority, const test_certificate& own, side which,
                    const char* cipher, int socket, int into) {
        const ssl_context_ptr context = bare_context(authority, &own);
        SSL_CTX_set_ciphersuites(context.get(), cipher);
        SSL_CTX_set_keylog_callback(context.get(), &hear);
        const openssl_ptr<SSL> ssl(SSL_new(context.get()));
        SSL_set_fd(ssl.get(), socket);
        const bool accepts = which == side::accepting;
        if ((accepts ? SSL_accept(ssl.get()) : SSL_connect(ssl.get())) != 1) return false;
        char one;
        if (SSL_read(ssl.get(), &one, 1) != 1 || SSL_write(ssl.get(), &one, 1) != 1) return false;
        report all;
        all.size = secrets[of_client].size;
        const unsigned char* const found[kinds] = {
            secrets[of_client].bytes.data(), secrets[of_server].bytes.data(),
            secrets[exporter].bytes.data(), in_ssl(ssl.get(), 6), in_ssl(ssl.get(), 7)};
        for (int each = 0; each < kinds; ++each) {
            const hidden_bytes masked({reinterpret_cast<const char*>(found[each]), all.size});
            std::memcpy(all.hidden[each].data(), masked.hidden().data(), all.size);
        }
        if (SSL_export_keying_material(
                ssl.get(), reinterpret_cast<unsigned char*>(all.exported.data()),
                all.exported.size(), label.data(), label.size(),
                reinterpret_cast<const unsigned char*>(context_of_export.data()),
                context_of_export.size(), 1) != 1 ||
            ::write(into, &all, sizeof all) != sizeof all)
            return false;
        // As long as the connection stands.
        const int end = SSL_read(ssl.get(), &one, 1);
        return SSL_get_error(ssl.get(), end) == SSL_ERROR_ZERO_RETURN;
    }

    unique_fd socket_, told_;
    pid_t child_ = -1;
};

class standing_connection : public testing::TestWithParam<std::tuple<side, const char*>> {
protected:
    void SetUp() override {
        const auto wait_for = [&](auto done) {
            while (!done())
                other->wait();
        };
        state at = state::waiting;
        wait_for([&] { return (at = session->shake_hands()) != state::waiting; });
        ASSERT_EQ(at, state::complete) << session->why().sentence;
        // Tickets come before it, and are taken.
        ASSERT_TRUE(session->write_whole(as_bytes_of(std::string_view("x"))));
        char one = 0;
        const iovec into{&one, 1};
        ssize_t got = -1;
        wait_for([&] {
            got = session->read({&into, 1}, false);
            return got >= 0 || errno != EAGAIN;
        });
        ASSERT_EQ(got, 1) << session->why().sentence;
        told = other->told();
    }
    void TearDown() override {
        if (session) session->say_end();
    }

    const side ours = std::get<0>(GetParam());
    const test_authority authority;
    const test_certificate own = authority.issue();
    std::optional<other_process> other{
        std::in_place, authority, own,
        ours == side::connecting ? side::accepting : side::connecting, std::get<1>(GetParam())};
    const ssl_context_ptr context = bare_context(authority, &own);
    const std::unique_ptr<tls_record> record = std::make_unique<tls_record>();
    std::optional<tls_session> session{std::in_place, *context, ours, other->socket(), *record};
    report told;
};

TEST_P(standing_connection, has_its_secrets_only_where_no_core_dump_has_them) {
    if (is_emulated()) GTEST_SKIP() << "qemu makes up its own /proc/self/smaps";
    if (keeps_freed_memory) GTEST_SKIP() << "sanitizers do not give freed memory out again";
    for (int each = 0; each < kinds; ++each) {
        const auto wanted = hidden_bytes::from_hidden(
            {reinterpret_cast<const char*>(told.hidden[each].data()), told.size});
        const auto places = places_of(wanted);
        for (const mapping& found : places)
            EXPECT_FALSE(found.in_core_dumps) << names[each] << " is in " << found.name;
        // We need no more of those that the others follow from.
        EXPECT_EQ(places.empty(), each == master || each == handshaking) << names[each];
    }
}

TEST_P(standing_connection, that_ended_or_goes_on_under_new_keys_has_the_old_secrets_nowhere) {
    if (is_emulated()) GTEST_SKIP() << "qemu makes up its own /proc/self/smaps";
    if (keeps_freed_memory) GTEST_SKIP() << "sanitizers do not give freed memory out again";
    const auto is_anywhere = [&](kind each) {
        return !places_of(hidden_bytes::from_hidden(
                              {reinterpret_cast<const char*>(told.hidden[each].data()), told.size}))
                    .empty();
    };
    const bool connects = ours == side::connecting;
    session->renew_key();
    EXPECT_FALSE(is_anywhere(connects ? of_client : of_server));
    EXPECT_TRUE(is_anywhere(connects ? of_server : of_client));
    session->say_end();
    session.reset();
    EXPECT_FALSE(is_anywhere(connects ? of_server : of_client));
    EXPECT_FALSE(is_anywhere(exporter));
}

TEST_P(standing_connection, exports_what_openssl_exports_at_the_other_end) {
    std::array<std::byte, 32> exported{};
    ASSERT_TRUE(session->export_key(label, as_bytes_of(context_of_export), exported));
    EXPECT_EQ(exported, told.exported);
    ASSERT_TRUE(session->export_key(label, {}, exported));
    EXPECT_NE(exported, told.exported);
    std::array<std::byte, 33> longer{};
    EXPECT_FALSE(session->export_key(label, {}, longer));
    EXPECT_FALSE(session->export_key(std::string(65, 'x'), {}, exported));
}

INSTANTIATE_TEST_SUITE_P(tls, standing_connection,
                         testing::Combine(testing::Values(side::connecting, side::accepting),
                                          testing::Values("TLS_AES_128_GCM_SHA256",
                                                          "TLS_AES_256_GCM_SHA384",
                                                          "TLS_CHACHA20_POLY1305_SHA256")),
                         [](const auto& of) {
                             const bool connects = std::get<0>(of.param) == side::connecting;
                             return (connects ? "connecting_" : "accepting_") +
                                    std::string(std::get<1>(of.param));
                         });

struct one_secret : in_secret_memory {
    std::array<char, 100> bytes{};
};

TEST(secret_memory, is_in_no_core_dump_however_much_of_it_is_taken) {
    if (is_emulated()) GTEST_SKIP() << "qemu makes up its own /proc/self/smaps";
    std::vector<std::unique_ptr<one_secret>> all;
    for (int i = 0; i < 1000; ++i)
        all.push_back(std::make_unique<one_secret>());
    const auto parts = mappings();
    for (const auto& each : all) {
        const auto at = reinterpret_cast<std::uintptr_t>(each.get());
        const auto part = std::find_if(parts.begin(), parts.end(), [&](const mapping& one) {
            return one.first <= at && at < one.last;
        });
        ASSERT_NE(part, parts.end());
        ASSERT_FALSE(part->in_core_dumps) << part->name;
    }
    std::sort(all.begin(), all.end());
    for (std::size_t i = 1; i < all.size(); ++i)
        ASSERT_GE(reinterpret_cast<char*>(all[i].get()) - reinterpret_cast<char*>(all[i - 1].get()),
                  static_cast<std::ptrdiff_t>(in_secret_memory::most_bytes));
}

TEST(secret_memory, is_wiped_in_the_end_and_given_out_again) {
    auto one = std::make_unique<one_secret>();
    const void* const at = one.get();
    one->bytes.fill('s');
    one.reset();
    void* const again = in_secret_memory::operator new(in_secret_memory::most_bytes);
    EXPECT_EQ(again, at);
    std::string_view bytes(static_cast<const char*>(again), in_secret_memory::most_bytes);
    bytes.remove_prefix(sizeof(void*));  // Where the next free piece was; any byte may be in it.
    EXPECT_EQ(bytes.find('s'), bytes.npos);
    in_secret_memory::operator delete(again);
}

TEST(secret_memory, of_more_than_a_piece_there_is_none) {
    constexpr std::size_t bytes = in_secret_memory::most_bytes + 1;
    EXPECT_EQ(in_secret_memory::operator new(bytes, std::nothrow), nullptr);
    EXPECT_THROW((void)in_secret_memory::operator new(bytes), std::bad_alloc);
}

}  // namespace
}  // namespace amalgam::detail
