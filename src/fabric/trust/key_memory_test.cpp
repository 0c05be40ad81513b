// What is left of a private key in the memory of a process that has loaded it.
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <openssl/crypto.h>
#include <sys/socket.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/fabric/temporary_key.hpp>

#include "fabric/trust/credential_store.hpp"
#include "fabric/trust/lab_testing.hpp"
#include "fabric/trust/tls_contexts.hpp"
#include "fabric/trust/tls_session.hpp"

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

TEST(key_memory, after_handshakes_a_pre_shared_key_is_only_where_no_core_dump_has_it) {
    if (keeps_freed_memory) GTEST_SKIP() << "sanitizers do not give freed memory out again";
    const temp_folder here;
    const std::string folder = here.with("one");
    make_key(folder, {.name = "one", .shared = true});
    const hidden_bytes text = secret_text_of(folder + "/shared.keys", 4, 60);
    const auto loaded = credentials::from_folder(folder);
    const hidden_bytes number = [&] {
        const auto secret = loaded->store().in_force()->shared()->own().secret;
        return hidden_bytes({reinterpret_cast<const char*>(secret.data()), secret.size()});
    }();
    tls_contexts contexts(loaded);
    int both[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both), 0);
    const unique_fd left(both[0]), right(both[1]);
    const auto record = std::make_unique<tls_record>();
    using side = tls_session::side;
    tls_session client(*contexts.connecting().value(), side::connecting, both[0], *record);
    tls_session server(*contexts.accepting().value(), side::accepting, both[1], *record);
    auto one = tls_session::state::waiting, other = one;
    while (one == tls_session::state::waiting || other == tls_session::state::waiting) {
        if (one == tls_session::state::waiting) one = client.shake_hands();
        if (other == tls_session::state::waiting) other = server.shake_hands();
    }
    ASSERT_EQ(one, tls_session::state::complete) << client.why().sentence;
    ASSERT_EQ(other, tls_session::state::complete) << server.why().sentence;
    for (const mapping& found : places_of(text))
        ADD_FAILURE() << "the key's text is in " << found.name;
    const auto places = places_of(number);
    EXPECT_FALSE(places.empty());
    for (const mapping& found : places)
        EXPECT_FALSE(found.in_core_dumps) << found.name;
}

}  // namespace
}  // namespace amalgam::detail
