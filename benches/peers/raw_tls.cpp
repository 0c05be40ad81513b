// OpenSSL as its manual shows it, over one loopback connection: two processes that poll,
// AES-128-GCM, no other library. What tcp+tls:// is measured against.
//   raw_tls latency SIZE SECONDS
//   raw_tls stream  SIZE SECONDS    written and read in pieces of SIZE bytes
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <amalgam/core/status.hpp>

#include "loopback.hpp"
#include "perf/measurement.hpp"
#include "perf/pair.hpp"

namespace {

using namespace amalgam;
using namespace amalgam::bench;

/// A certificate that only this run knows, which nobody checks.
void certify(SSL_CTX* context) {
    EVP_PKEY* const key = EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519");
    X509* const made = X509_new();
    X509_set_version(made, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made), 1);
    X509_gmtime_adj(X509_getm_notBefore(made), 0);
    X509_gmtime_adj(X509_getm_notAfter(made), 3600);
    X509_set_pubkey(made, key);
    X509_NAME* const name = X509_get_subject_name(made);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("x"), -1, -1, 0);
    X509_set_issuer_name(made, name);
    X509_sign(made, key, nullptr);
    SSL_CTX_use_certificate(context, made);
    SSL_CTX_use_PrivateKey(context, key);
    X509_free(made);
    EVP_PKEY_free(key);
}

/// The socket does not wait once the handshake is done.
class tls_end {
public:
    tls_end(unique_fd fd, bool is_server) : fd_(std::move(fd)) {
        no_delay(fd_.get());
        context_ = SSL_CTX_new(is_server ? TLS_server_method() : TLS_client_method());
        SSL_CTX_set_min_proto_version(context_, TLS1_3_VERSION);
        SSL_CTX_set_ciphersuites(context_, "TLS_AES_128_GCM_SHA256");
        SSL_CTX_set_num_tickets(context_, 0);
        if (is_server) certify(context_);
        ssl_ = SSL_new(context_);
        SSL_set_fd(ssl_, fd_.get());
        SSL_set_read_ahead(ssl_, 1);
        SSL_set_default_read_buffer_len(ssl_, 65536);
        SSL_set_mode(ssl_, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_ENABLE_PARTIAL_WRITE);
        if ((is_server ? SSL_accept(ssl_) : SSL_connect(ssl_)) != 1) fail("the handshake");
        ::fcntl(fd_.get(), F_SETFL, O_NONBLOCK);
    }
    tls_end(const tls_end&) = delete;
    ~tls_end() {
        SSL_free(ssl_);
        SSL_CTX_free(context_);
    }

    /// At least one byte of it; 0: the other end closed.
    std::size_t read(std::byte* into, std::size_t bytes) {
        return some([&] { return SSL_read(ssl_, into, static_cast<int>(bytes)); });
    }
    std::size_t write(const std::byte* from, std::size_t bytes) {
        return some([&] { return SSL_write(ssl_, from, static_cast<int>(bytes)); });
    }
    bool read_all(std::byte* into, std::size_t bytes) {
        for (std::size_t at = 0; at < bytes;) {
            const std::size_t got = read(into + at, bytes - at);
            if (got == 0) return false;
            at += got;
        }
        return true;
    }
    bool write_all(const std::byte* from, std::size_t bytes) {
        for (std::size_t at = 0; at < bytes;) {
            const std::size_t gone = write(from + at, bytes - at);
            if (gone == 0) return false;
            at += gone;
        }
        return true;
    }

private:
    template <typename Call>
    std::size_t some(Call&& call) {
        for (;;) {
            const int done = call();
            if (done > 0) return static_cast<std::size_t>(done);
            const int why = SSL_get_error(ssl_, done);
            if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) return 0;
        }
    }

    unique_fd fd_;
    SSL_CTX* context_ = nullptr;
    SSL* ssl_ = nullptr;
};

unique_fd accept_one(perf::channel& talk) {
    std::string port;
    const unique_fd listener = listen_on_loopback(port);
    talk.write_line(port);
    return unique_fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
}

perf::measurement latency(std::size_t size, double seconds) {
    perf::forked_peer peer([&](perf::channel& talk) {
        tls_end end(accept_one(talk), true);
        std::vector<std::byte> bytes(size);
        while (end.read_all(bytes.data(), size) && end.write_all(bytes.data(), size)) {
        }
    });
    tls_end end(connect_to(peer.talk().read_line()), false);
    std::vector<std::byte> bytes(size);
    auto m = perf::measure_round_trips(seconds, [&] {
        if (!end.write_all(bytes.data(), size) || !end.read_all(bytes.data(), size))
            fail("round trip");
    });
    m.bytes_per_s = 2 * m.ops_per_s * static_cast<double>(size);
    return m;
}

perf::measurement stream(std::size_t size, double seconds) {
    perf::forked_peer peer([&](perf::channel& talk) {
        tls_end end(accept_one(talk), true);
        std::vector<std::byte> bytes(size);
        std::uint64_t total = 0;
        const auto start = perf::clock_type::now();
        while (const std::size_t got = end.read(bytes.data(), size))
            total += got;
        talk.write_line(std::to_string(static_cast<double>(total) / perf::seconds_since(start)));
        talk.read_line();
    });
    auto end = std::make_unique<tls_end>(connect_to(peer.talk().read_line()), false);
    const std::vector<std::byte> bytes(size);
    const auto start = perf::clock_type::now();
    while (perf::seconds_since(start) < seconds)
        if (!end->write_all(bytes.data(), size)) fail("send");
    end.reset();
    perf::measurement m;
    m.bytes_per_s = std::stod(peer.talk().read_line());
    m.ops_per_s = m.bytes_per_s / static_cast<double>(size);
    return m;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view test = argc == 4 ? argv[1] : "";
    if (test != "latency" && test != "stream") {
        std::fprintf(stderr, "usage: %s latency|stream SIZE SECONDS\n", argv[0]);
        return 2;
    }
    const auto size = static_cast<std::size_t>(std::atoll(argv[2]));
    auto m =
        test == "latency" ? latency(size, std::atof(argv[3])) : stream(size, std::atof(argv[3]));
    m.test = test == "latency" ? "message-latency" : "stream-rate";
    m.uri = "raw-tls";
    m.size_bytes = size;
    std::puts(perf::to_json(m).c_str());
}
