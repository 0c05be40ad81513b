// What tcp+tls:// costs.
//   tls perf ARGUMENTS    `amalgam perf ARGUMENTS`, where the key "bench" exists
//   tls cipher SECONDS    AES-128-GCM alone on one core, as `openssl speed` measures it
//   tls resumed SECONDS   milliseconds from a lookup to the peer's first message, for a connection
//                         that resumes an earlier session; both ends in this thread
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <openssl/evp.h>
#include <spawn.h>
#include <sys/wait.h>

#include <amalgam/core/status.hpp>
#include <amalgam/fabric/credentials.hpp>
#include <amalgam/fabric/transport.hpp>

#include "bench_keys.hpp"
#include "perf/measurement.hpp"
#include "perf/pair.hpp"

namespace {

using namespace amalgam;
using bench::bench_keys;
using steady = std::chrono::steady_clock;

int run_perf(int count, char** words) {
    const bench_keys keys;
    std::string program = "amalgam", command = "perf";
    std::vector<char*> all{program.data(), command.data()};
    all.insert(all.end(), words, words + count);
    all.push_back(nullptr);
    pid_t child = -1;
    int how = -1;
    if (::posix_spawnp(&child, all[0], nullptr, nullptr, all.data(), ::environ) != 0 ||
        ::waitpid(child, &how, 0) != child)
        throw error(errc::internal, "`amalgam` could not be run");
    return WIFEXITED(how) ? WEXITSTATUS(how) : 1;
}

/// In the size of a record. The key is set once, and each block is the continuation of the one
/// before.
perf::measurement cipher(double seconds) {
    constexpr int block = 16384;
    std::vector<unsigned char> bytes(block + 64);
    const unsigned char key[16] = {1}, nonce[12] = {2};
    EVP_CIPHER_CTX* const made = EVP_CIPHER_CTX_new();
    if (made == nullptr || EVP_EncryptInit_ex(made, EVP_aes_128_gcm(), nullptr, key, nonce) != 1)
        throw error(errc::unsupported, "OpenSSL has no AES-128-GCM");
    perf::measurement found = perf::measure_round_trips(seconds, [&] {
        int size = 0;
        if (EVP_EncryptUpdate(made, bytes.data(), &size, bytes.data(), block) != 1)
            throw error(errc::internal, "OpenSSL refused to encrypt");
    });
    EVP_CIPHER_CTX_free(made);
    found.test = "cipher";
    found.size_bytes = block;
    found.bytes_per_s = found.ops_per_s * block;
    return found;
}

struct hearing final : message_sink {
    void on_message(message&) noexcept override { heard = true; }
    void on_peer_down(peer_id, status) noexcept override {}
    bool heard = false;
};

struct sending final : completion {
    sending() noexcept : completion(&ran) {}
    static void ran(completion& self, status, std::size_t) noexcept {
        static_cast<sending&>(self).over = true;
    }
    bool over = false;
};

double resumed(double seconds) {
    const bench_keys keys;
    port_options options;
    options.trust = credentials::from_folder("bench");
    const auto transports = transport_registry::native();
    const auto server = transports.open("tcp+tls://127.0.0.1:0", options).value();
    const auto client = transports.open("tcp+tls://", options).value();
    hearing at_server, at_client;
    server->set_sink(&at_server);
    client->set_sink(&at_client);
    const std::string address = server->address();
    const std::string text = "x";
    const const_bytes bytes = as_bytes_of(text);
    std::vector<double> took;
    const auto end = steady::now() + std::chrono::duration<double>(seconds);
    for (int i = 0; i < 20 || steady::now() < end; ++i) {
        at_server.heard = false;
        sending first;
        const auto begin = steady::now();
        const peer_id there = client->lookup(address).value();
        const posted how = client->post_send(there, 0, gather(&bytes, 1), first);
        while (!at_server.heard || (how == posted::pending && !first.over)) {
            client->progress();
            server->progress();
        }
        took.push_back(std::chrono::duration<double, std::milli>(steady::now() - begin).count());
        client->close(there);
        client->progress();
        server->progress();
    }
    took.erase(took.begin(), took.begin() + 5);  // The first shakes hands at length.
    const auto middle = took.begin() + static_cast<std::ptrdiff_t>(took.size() / 2);
    std::nth_element(took.begin(), middle, took.end());
    return *middle;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view what = argc >= 3 ? argv[1] : "";
    try {
        if (what == "perf") return run_perf(argc - 2, argv + 2);
        if (argc != 3 || (what != "cipher" && what != "resumed")) {
            std::fprintf(stderr, "usage: %s perf ARGUMENTS | cipher SECONDS | resumed SECONDS\n",
                         argv[0]);
            return 2;
        }
        perf::pin_to_processor(0);
        const double seconds = std::atof(argv[2]);
        if (what == "cipher")
            std::printf("%s\n", perf::to_json(cipher(seconds)).c_str());
        else
            std::printf("{\"test\": \"resumed\", \"value\": %.6g}\n", resumed(seconds));
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
        return 1;
    }
}
