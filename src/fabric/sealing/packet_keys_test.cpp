#include "fabric/sealing/packet_keys.hpp"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include "emulated.hpp"

namespace amalgam::detail {
namespace {

constexpr link_secrets::key some_key{std::byte{1}, std::byte{2}, std::byte{3}};
constexpr link_secrets::key other_key{std::byte{9}};

using bytes = std::vector<std::byte>;

bytes patterned(std::size_t size) {
    bytes made(size);
    for (std::size_t i = 0; i < size; ++i)
        made[i] = static_cast<std::byte>(i * 7 + 1);
    return made;
}

bytes sealed_by(packet_key& by, const bytes& plain) {
    bytes made(plain.size() + packet_key::tag_bytes);
    by.seal(plain, made.data());
    return made;
}

bool opens(packet_key& by, const bytes& sealed, const bytes& plain) {
    bytes found(sealed.size());
    if (!by.open(sealed, found.data())) return false;
    found.resize(sealed.size() - packet_key::tag_bytes);
    EXPECT_EQ(found, plain);
    return true;
}

class packet_key_test : public testing::TestWithParam<packet_cipher> {
protected:
    void SetUp() override {
        if ((ciphers_here() & static_cast<unsigned>(GetParam())) == 0)
            GTEST_SKIP() << "this processor has no instructions for AES";
    }
};

TEST_P(packet_key_test, packets_of_any_length_open_to_what_was_sealed_in_its_order) {
    packet_key here(GetParam(), some_key), there(GetParam(), some_key);
    for (const std::size_t size : {8u, 0u, 1u, 15u, 16u, 17u, 1000u, 65'520u}) {
        const bytes plain = patterned(size);
        const bytes sealed = sealed_by(here, plain);
        if (size >= 8) {
            EXPECT_EQ(::memmem(sealed.data(), sealed.size(), plain.data(), 8), nullptr);
        }
        EXPECT_TRUE(opens(there, sealed, plain)) << size;
    }
}

TEST_P(packet_key_test, one_that_comes_again_is_not_opened) {
    packet_key here(GetParam(), some_key), there(GetParam(), some_key);
    const bytes plain = patterned(100), sealed = sealed_by(here, plain);
    EXPECT_TRUE(opens(there, sealed, plain));
    EXPECT_FALSE(opens(there, sealed, plain));
}

TEST_P(packet_key_test, one_that_overtakes_another_is_not_opened) {
    packet_key here(GetParam(), some_key), there(GetParam(), some_key);
    const bytes plain = patterned(100);
    (void)sealed_by(here, plain);
    EXPECT_FALSE(opens(there, sealed_by(here, plain), plain));
}

TEST_P(packet_key_test, a_change_of_any_byte_is_noticed_and_so_is_a_missing_one) {
    const bytes plain = patterned(40);
    packet_key here(GetParam(), some_key);
    const bytes sealed = sealed_by(here, plain);
    for (std::size_t i = 0; i < sealed.size(); ++i) {
        packet_key there(GetParam(), some_key);
        bytes changed = sealed;
        changed[i] ^= std::byte{0x20};
        EXPECT_FALSE(opens(there, changed, plain)) << i;
        const bytes cut(sealed.begin(), sealed.begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_FALSE(opens(there, cut, plain)) << i;
    }
    packet_key there(GetParam(), some_key);
    EXPECT_TRUE(opens(there, sealed, plain));
}

TEST_P(packet_key_test, what_another_key_sealed_is_not_opened) {
    packet_key here(GetParam(), some_key), there(GetParam(), other_key);
    const bytes plain = patterned(100);
    EXPECT_FALSE(opens(there, sealed_by(here, plain), plain));
}

TEST_P(packet_key_test, both_ends_go_on_to_the_next_key_together_and_it_is_another) {
    packet_key here(GetParam(), some_key), there(GetParam(), some_key);
    const bytes plain = patterned(24);
    bytes first, sealed(plain.size() + packet_key::tag_bytes), found(plain.size());
    for (std::uint64_t i = 0; i <= packet_key::packets_per_key; ++i) {
        here.seal(plain, sealed.data());
        if (i == 0) first = sealed;
        ASSERT_TRUE(there.open(sealed, found.data())) << i;
    }
    // Packet 0 of the second key: the same bytes under the same number.
    EXPECT_NE(sealed, first);
    EXPECT_EQ(found, plain);
}

INSTANTIATE_TEST_SUITE_P(all, packet_key_test,
                         testing::Values(packet_cipher::aes_256_gcm,
                                         packet_cipher::xchacha20_poly1305),
                         [](const auto& of) {
                             return of.param == packet_cipher::aes_256_gcm ? "aes" : "xchacha";
                         });

TEST(packet_keys, the_better_cipher_that_both_ends_have_is_chosen) {
    EXPECT_EQ(choose_cipher(3, 3), packet_cipher::aes_256_gcm);
    EXPECT_EQ(choose_cipher(3, 2), packet_cipher::xchacha20_poly1305);
    EXPECT_EQ(choose_cipher(2, 0xff), packet_cipher::xchacha20_poly1305);
    EXPECT_EQ(choose_cipher(3, 0), std::nullopt);
    EXPECT_EQ(choose_cipher(1, 2), std::nullopt);
    EXPECT_EQ(choose_cipher(3, 0xfc), std::nullopt);
}

// Another implementation makes the same of docs/wire/packets.md.
TEST(packet_keys, a_sealed_packet_is_aes_256_gcm_as_others_know_it) {
    if ((ciphers_here() & 1u) == 0) GTEST_SKIP() << "this processor has no instructions for AES";
    unsigned char both[64];
    constexpr std::string_view label = "amalgam packet key";
    crypto_generichash(both, sizeof both, reinterpret_cast<const unsigned char*>(label.data()),
                       label.size(), reinterpret_cast<const unsigned char*>(some_key.data()),
                       some_key.size());
    packet_key here(packet_cipher::aes_256_gcm, some_key);
    const bytes plain = patterned(50);
    (void)sealed_by(here, plain);
    const bytes sealed = sealed_by(here, plain);
    const unsigned char nonce[12] = {1};
    bytes expected(sealed.size());
    auto* const at = reinterpret_cast<unsigned char*>(expected.data());
    EVP_CIPHER_CTX* const with = EVP_CIPHER_CTX_new();
    int size = 0;
    EXPECT_EQ(EVP_EncryptInit_ex(with, EVP_aes_256_gcm(), nullptr, both + 32, nonce), 1);
    EXPECT_EQ(EVP_EncryptUpdate(with, at, &size, reinterpret_cast<const unsigned char*>(&plain[0]),
                                static_cast<int>(plain.size())),
              1);
    EXPECT_EQ(EVP_EncryptFinal_ex(with, at + size, &size), 1);
    EXPECT_EQ(EVP_CIPHER_CTX_ctrl(with, EVP_CTRL_GCM_GET_TAG, 16, at + plain.size()), 1);
    EVP_CIPHER_CTX_free(with);
    EXPECT_EQ(sealed, expected);
}

/// The flags of this process's memory at that address, as the kernel shows them.
std::string flags_of(const void* at) {
    std::ifstream file("/proc/self/smaps");
    bool is_there = false;
    for (std::string line; std::getline(file, line);) {
        std::uintptr_t first = 0, last = 0;
        char rights[5] = {};
        if (std::sscanf(line.c_str(), "%lx-%lx %4s", &first, &last, rights) == 3) {
            const auto wanted = reinterpret_cast<std::uintptr_t>(at);
            is_there = first <= wanted && wanted < last;
        } else if (is_there && line.starts_with("VmFlags:")) {
            return line;
        }
    }
    return {};
}

TEST(packet_keys, keys_are_in_memory_that_no_core_dump_has) {
    if (is_emulated()) GTEST_SKIP() << qemu_makes_proc_files_up;
    link_secrets secrets;
    secrets.sending = some_key;
    const auto made = make_packet_keys(packet_cipher::xchacha20_poly1305, secrets);
    ASSERT_NE(made, nullptr);
    EXPECT_NE(flags_of(made.get()).find(" dd"), std::string::npos) << flags_of(made.get());
    const auto plain = std::make_unique<int>(1);
    EXPECT_EQ(flags_of(plain.get()).find(" dd"), std::string::npos) << "the test itself";
}

}  // namespace
}  // namespace amalgam::detail
