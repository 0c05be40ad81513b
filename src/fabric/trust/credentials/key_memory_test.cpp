// What is left of a private key in the memory of a process that has loaded it.
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
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

#include "emulated.hpp"
#include "fabric/trust/credentials/credential_store.hpp"
#include "fabric/trust/key_folders/lab_testing.hpp"
#include "fabric/trust/keys/pre_shared_keys.hpp"
#include "fabric/trust/tls/tls_contexts.hpp"
#include "fabric/trust/tls/tls_session.hpp"

namespace amalgam::detail {
namespace {

/// Bytes to look for, which this test itself must not have in its memory.
class hidden_bytes {
public:
    explicit hidden_bytes(std::string_view plain) : bytes_(plain) {
        for (char& each : bytes_)
            each = static_cast<char>(each ^ mask);
    }
    std::size_t size() const noexcept { return bytes_.size(); }
    /// Where they begin in [from, to), null if nowhere.
    const char* find(const char* from, const char* to) const noexcept {
        for (; to - from >= static_cast<std::ptrdiff_t>(size()); ++from) {
            from = static_cast<const char*>(std::memchr(
                from, bytes_[0] ^ mask, static_cast<std::size_t>(to - from) - size() + 1));
            if (from == nullptr) return nullptr;
            std::size_t same = 1;
            while (same < size() && (from[same] ^ mask) == bytes_[same])
                ++same;
            if (same == size()) return from;
        }
        return nullptr;
    }

private:
    static constexpr char mask = 0x5a;
    std::string bytes_;
};

struct mapping {
    std::uintptr_t first = 0, last = 0;
    std::string name;
    bool readable = false;
    bool in_core_dumps = true;
};

/// Of this process.
std::vector<mapping> mappings() {
    std::ifstream file("/proc/self/smaps");
    std::vector<mapping> all;
    for (std::string line; std::getline(file, line);) {
        mapping one;
        char rights[5] = {};
        if (std::sscanf(line.c_str(), "%lx-%lx %4s", &one.first, &one.last, rights) == 3) {
            one.name = line;
            one.readable = rights[0] == 'r';
            all.push_back(one);
        } else if (line.starts_with("VmFlags:") && !all.empty()) {
            all.back().in_core_dumps = line.find(" dd") == line.npos;
        }
    }
    return all;
}

/// Where `wanted` is, as the mappings there.
std::vector<mapping> places_of(const hidden_bytes& wanted) {
    constexpr std::size_t most = std::size_t{1} << 30;  // Those of sanitizers are larger.
    const unique_fd memory(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
    EXPECT_TRUE(memory);
    std::vector<char> part(std::size_t{1} << 20);
    std::vector<mapping> found;
    const auto own = reinterpret_cast<std::uintptr_t>(part.data());
    for (const mapping& each : mappings()) {
        if (!each.readable || each.last - each.first > most) continue;
        const std::size_t step = part.size() - wanted.size() + 1;
        for (std::uintptr_t at = each.first; at < each.last; at += step) {
            const std::size_t size = std::min<std::size_t>(part.size(), each.last - at);
            const ssize_t got = ::pread(memory.get(), part.data(), size, static_cast<off_t>(at));
            const char* const end = part.data() + std::max<ssize_t>(got, 0);
            for (const char* hit = part.data(); (hit = wanted.find(hit, end)) != nullptr; ++hit) {
                const auto place = at + static_cast<std::uintptr_t>(hit - part.data());
                if (place + wanted.size() > own && place < own + part.size()) continue;
                found.push_back(each);
            }
        }
    }
    OPENSSL_cleanse(part.data(), part.size());
    return found;
}

/// The part of a file's text that only its private key decides.
hidden_bytes secret_text_of(const std::string& path, std::size_t from, std::size_t size) {
    char text[4096] = {};
    const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT_GT(::read(file.get(), text, sizeof text), static_cast<ssize_t>(from + size));
    const hidden_bytes hidden(std::string_view(text, sizeof text).substr(from, size));
    OPENSSL_cleanse(text, sizeof text);
    return hidden;
}

#if defined(__has_feature)
#define TEST_HAS_FEATURE(x) __has_feature(x)
#else
#define TEST_HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    TEST_HAS_FEATURE(address_sanitizer) || TEST_HAS_FEATURE(thread_sanitizer)
constexpr bool keeps_freed_memory = true;
#else
constexpr bool keeps_freed_memory = false;
#endif

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
