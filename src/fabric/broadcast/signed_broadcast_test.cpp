#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/fabric/signed_broadcast.hpp>

#include "fabric/broadcast/replay_windows.hpp"
#include "fabric/trust/credentials/credential_store.hpp"
#include "fabric/trust/credentials/signatures.hpp"
#include "fabric/trust/key_folders/lab_testing.hpp"
#include "fabric/trust/tls/tls_testing.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;
using refusal = broadcast_refusal;
using packet = std::vector<std::byte>;

/// What is sent is kept, and given to nobody but by the test: an attacker's view.
struct wire final : broadcast_medium {
    explicit wire(std::size_t most = 1400) : most_bytes(most) {}
    void listen(receiver function) override { hears = std::move(function); }
    bool send(const_bytes bytes) noexcept override {
        sent.emplace_back(bytes.begin(), bytes.end());
        return true;
    }
    std::size_t max_bytes() const noexcept override { return most_bytes; }
    void deliver(const packet& bytes) {
        // Exactly as long as it is, so that a sanitizer sees what is read past it.
        void* const at =
            ::operator new(std::max<std::size_t>(1, bytes.size()), std::align_val_t(16));
        if (!bytes.empty()) std::memcpy(at, bytes.data(), bytes.size());
        if (hears) hears({static_cast<const std::byte*>(at), bytes.size()});
        ::operator delete(at, std::align_val_t(16));
    }

    std::size_t most_bytes;
    receiver hears;
    std::vector<packet> sent;
};

/// One end of a signed medium, and what it passed on or refused.
struct station {
    station(const std::shared_ptr<const credentials>& by,
            const std::chrono::system_clock::time_point& time, const char* takes = nullptr)
        : on(sign_broadcasts(
              raw, by,
              {.takes = takes == nullptr
                            ? std::function<bool(const identity&)>()
                            : [takes](const identity& who) { return who.name == takes; },
               .on_refused = [this](refusal why) { ++refused[why]; },
               .now = [&time] { return time; }})) {
        on->listen([this](const_bytes bytes) {
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.data()) % 16, 0u);
            heard.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        });
    }
    packet says(const std::string& what) {
        EXPECT_TRUE(on->send(as_bytes_of(what)));
        return raw->sent.back();
    }
    void hears(const packet& bytes) { raw->deliver(bytes); }

    std::shared_ptr<wire> raw = std::make_shared<wire>();
    std::map<refusal, int> refused;
    std::vector<std::string> heard;
    std::shared_ptr<broadcast_medium> on;
};

using words = std::vector<std::string>;
using counts = std::map<refusal, int>;

struct signed_broadcast_test : testing::Test {
    std::shared_ptr<const credentials> named(const char* name) const {
        return lab.trust_of(lab.authority.issue({.name = name}));
    }

    detail::test_lab lab;
    std::chrono::system_clock::time_point time = std::chrono::system_clock::now();
    station a{named("a"), time}, b{named("b"), time};
};

TEST_F(signed_broadcast_test, passes_on_what_a_certified_sender_sends_and_not_its_own) {
    const packet one = a.says("one"), two = a.says("");
    b.hears(one);
    b.hears(two);
    a.hears(one);
    EXPECT_EQ(b.heard, (words{"one", ""}));
    EXPECT_EQ(a.heard, words{});
    EXPECT_EQ(a.refused, counts{}) << "its own are no attack";
    const std::string longest(a.on->max_bytes(), 'x');
    const packet full = a.says(longest);
    EXPECT_LE(full.size(), a.raw->max_bytes());
    b.hears(full);
    EXPECT_EQ(b.heard.back(), longest);
}

TEST_F(signed_broadcast_test, a_packet_is_taken_once_however_often_it_is_replayed) {
    const packet one = a.says("one");
    for (int i = 0; i < 3; ++i)
        b.hears(one);
    EXPECT_EQ(b.heard, words{"one"});
    EXPECT_EQ(b.refused, (counts{{refusal::repeated, 2}}));
    station late{named("late"), time};
    time += 31s;
    b.hears(one);
    late.hears(one);
    EXPECT_EQ(late.heard, words{}) << "it has never heard it, but it is old";
    EXPECT_EQ(late.refused, (counts{{refusal::stale, 1}}));
    EXPECT_EQ(b.refused[refusal::stale], 1);
    time -= 62s;  // As if from the future.
    station early{named("early"), time};
    early.hears(one);
    EXPECT_EQ(early.refused, (counts{{refusal::stale, 1}}));
}

TEST_F(signed_broadcast_test, takes_packets_out_of_order_but_not_those_that_many_have_overtaken) {
    std::vector<packet> all;
    for (int i = 0; i < 70; ++i)
        all.push_back(a.says(std::to_string(i)));
    b.hears(all[69]);
    b.hears(all[6]);
    b.hears(all[5]);
    b.hears(all[68]);
    EXPECT_EQ(b.heard, (words{"69", "6", "68"}));
    EXPECT_EQ(b.refused, (counts{{refusal::repeated, 1}}));
}

TEST_F(signed_broadcast_test, refuses_who_is_not_certified_or_not_allowed) {
    detail::test_lab other;
    station stranger{other.trust, time};
    b.hears(stranger.says("let me in"));
    station picky{named("c"), time, "b"};
    picky.hears(a.says("a here"));
    picky.hears(b.says("b here"));
    EXPECT_EQ(picky.heard, words{"b here"});
    EXPECT_EQ(picky.refused, (counts{{refusal::not_allowed, 1}}));
    EXPECT_EQ(b.heard, words{});
    EXPECT_EQ(b.refused, (counts{{refusal::untrusted, 1}}));
}

TEST_F(signed_broadcast_test, a_certificate_that_has_expired_meanwhile_is_refused) {
    b.hears(a.says("valid"));
    time += 2h;
    b.hears(a.says("expired"));
    EXPECT_EQ(b.heard, words{"valid"});
    EXPECT_EQ(b.refused, (counts{{refusal::untrusted, 1}}));
}

TEST_F(signed_broadcast_test, nobody_outlives_the_authority_that_vouches_for_him) {
    station old(lab.trust_of(lab.authority.issue({.name = "old", .ends = 1'000'000})), time);
    b.hears(old.says("valid"));
    time += 3h;  // The authority has ended after two.
    b.hears(old.says("its authority has expired"));
    EXPECT_EQ(b.heard, words{"valid"});
    EXPECT_EQ(b.refused, (counts{{refusal::untrusted, 1}}));
}

TEST_F(signed_broadcast_test, no_changed_or_cut_packet_passes) {
    const packet one = a.says("what was said");
    seeded_random random(3);
    for (std::size_t i = 0; i < one.size(); ++i) {
        packet changed = one;
        changed[i] ^= static_cast<std::byte>(1 + random.below(255));
        b.hears(changed);
        b.hears(packet(one.begin(), one.begin() + static_cast<std::ptrdiff_t>(i)));
    }
    packet longer = one;
    longer.push_back({});
    b.hears(longer);
    EXPECT_EQ(b.heard, words{});
    b.hears(one);
    EXPECT_EQ(b.heard, words{"what was said"}) << "and they did not use up its number";
}

TEST_F(signed_broadcast_test, nobody_speaks_with_the_certificate_of_another) {
    const packet of_a = a.says("I am a"), of_b = b.says("I am b");
    station c{named("c"), time};
    // The header and payload of one, the certificate and signature of the other; same lengths.
    ASSERT_EQ(of_a.size(), of_b.size());
    packet mixed = of_a;
    std::copy(of_b.begin() + 54, of_b.end(), mixed.begin() + 54);
    c.hears(mixed);
    packet forged = of_a;
    std::copy(of_b.end() - 64, of_b.end(), forged.end() - 64);
    c.hears(forged);
    EXPECT_EQ(c.heard, words{});
    EXPECT_EQ(c.refused, (counts{{refusal::untrusted, 2}}));
}

TEST_F(signed_broadcast_test, works_with_p256_and_is_refused_where_nothing_would_fit) {
    const lab_folder folders;
    const std::string path = folders.add("p256", {.algorithm = key_algorithm::p256});
    const auto by = credentials::from_folder(path);
    station p256{by, time}, peer{credentials::from_folder(folders.add("peer")), time};
    for (int i = 0; i < 20; ++i)  // Its signatures differ in length.
        peer.hears(p256.says("x"));
    EXPECT_EQ(peer.heard.size(), 20u);
    try {
        (void)sign_broadcasts(std::make_shared<wire>(700), by);
        ADD_FAILURE() << "expected an error";
    } catch (const error& why) {
        EXPECT_EQ(why.code(), errc::invalid);
        EXPECT_NE(std::string(why.what()).find("expected a key of Ed25519 or P-256"),
                  std::string::npos)
            << why.what();
    }
}

TEST_F(signed_broadcast_test, what_is_revoked_is_refused_as_soon_as_the_list_is_there) {
    const lab_folder folders;
    const auto by = credentials::from_folder(folders.add("receiver"));
    station sender{credentials::from_folder(folders.add("sender")), time}, receiver{by, time};
    receiver.hears(sender.says("before"));
    revoke_key(folders.with("sender"), folders.lab);
    trust_authority(folders.with("receiver"), folders.lab);
    ASSERT_TRUE(by->reload().ok());
    receiver.hears(sender.says("after"));
    EXPECT_EQ(receiver.heard, words{"before"});
    EXPECT_EQ(receiver.refused, (counts{{refusal::untrusted, 1}}));
}

TEST_F(signed_broadcast_test, trusted_keys_are_enough_without_an_authority) {
    const auto mine = lab.authority.issue({.name = "mine"}),
               its = lab.authority.issue({.name = "its"});
    const auto trusting = [](const detail::test_certificate& own,
                             const detail::test_certificate& other) {
        return credentials::from_text({.certificate = detail::pem_of(own.made.get()),
                                       .key = detail::pem_of(own.key.get()),
                                       .trusted_keys = {detail::fingerprint_of(*other.key)}});
    };
    station one{trusting(mine, its), time}, two{trusting(its, mine), time};
    two.hears(one.says("known"));
    two.hears(a.says("unknown"));
    EXPECT_EQ(two.heard, words{"known"});
    EXPECT_EQ(two.refused, (counts{{refusal::untrusted, 1}}));
}

TEST_F(signed_broadcast_test, who_is_no_client_has_a_short_key_or_is_not_valid_yet_is_no_signer) {
    const auto bytes_of_shown = [](X509* shown) {
        unsigned char* der = nullptr;
        const int size = i2d_X509(shown, &der);
        const auto* const at = reinterpret_cast<const std::byte*>(der);
        const packet all(at, at + std::max(size, 0));
        OPENSSL_free(der);
        return all;
    };
    const auto good = lab.authority.issue({.name = "good"}),
               of_server = lab.authority.issue({.uses = "serverAuth"}),
               early = lab.authority.issue({.starts = 1000, .ends = 2000});
    const auto by_keys = credentials::from_text(
        {.certificate = detail::pem_of(good.made.get()),
         .key = detail::pem_of(good.key.get()),
         .trusted_keys = {detail::fingerprint_of(*good.key), detail::fingerprint_of(*of_server.key),
                          detail::fingerprint_of(*early.key)}});
    for (const auto& trust : {lab.trust, by_keys}) {
        const auto by = trust->store().in_force();
        const auto code_of_shown = [&](const packet& shown) {
            return detail::verified_signer::of(*by, shown).code();
        };
        packet longer = bytes_of_shown(good.made.get());
        EXPECT_EQ(code_of_shown(longer), errc::ok);
        longer.push_back({});
        EXPECT_EQ(code_of_shown(longer), errc::denied);
        EXPECT_EQ(code_of_shown(bytes_of_shown(of_server.made.get())), errc::denied);
        EXPECT_EQ(code_of_shown(bytes_of_shown(early.made.get())), errc::denied);
    }
    const detail::pkey_ptr weak(EVP_PKEY_Q_keygen(nullptr, nullptr, "RSA", std::size_t{1024}));
    const auto shown =
        detail::make_certificate({"weak", {}, {}}, *weak, std::chrono::system_clock::now() + 1h,
                                 *lab.authority.certificate(), *lab.authority.key());
    const auto by = lab.trust->store().in_force();
    EXPECT_EQ(detail::verified_signer::of(*by, bytes_of_shown(shown.get())).code(), errc::denied);
}

// ---- windows

using outcome = detail::replay_windows::outcome;

TEST(replay_windows, behave_as_a_set_of_numbers_within_64_of_the_highest) {
    detail::replay_windows all(1s);
    const std::chrono::system_clock::time_point now{1h};
    std::set<std::uint64_t> seen;
    std::uint64_t highest = 0;
    seeded_random random(11);
    for (int i = 0; i < 20000; ++i) {
        const std::uint64_t number =
            1 + highest + random.below(100) - std::min<std::uint64_t>(highest, 90);
        const bool is_new = !seen.contains(number) && (number > highest || highest - number < 64);
        EXPECT_EQ(all.note({}, 7, number, now), is_new ? outcome::fresh : outcome::repeated);
        if (is_new) seen.insert(number);
        highest = std::max(highest, is_new ? number : 0);
    }
    const std::uint64_t last = ~std::uint64_t{0};
    EXPECT_EQ(all.note({}, 7, last, now), outcome::fresh);
    EXPECT_EQ(all.note({}, 7, last, now), outcome::repeated);
}

TEST(replay_windows, give_nobody_up_who_may_still_be_replayed) {
    detail::replay_windows all(1s, 2, 2);
    std::chrono::system_clock::time_point now{1h};
    const auto key = [](std::uint8_t which) {
        key_fingerprint one;
        one.bytes[0] = which;
        return one;
    };
    EXPECT_EQ(all.note(key(1), 1, 1, now), outcome::fresh);
    EXPECT_EQ(all.note(key(1), 2, 1, now), outcome::fresh);
    EXPECT_EQ(all.note(key(1), 3, 1, now), outcome::crowded);
    EXPECT_EQ(all.note(key(2), 3, 1, now), outcome::fresh);
    EXPECT_EQ(all.note(key(3), 1, 1, now), outcome::crowded);
    now += 2s;
    EXPECT_EQ(all.note(key(1), 3, 1, now), outcome::crowded) << "two windows are not over";
    EXPECT_EQ(all.note(key(1), 1, 1, now), outcome::repeated);
    EXPECT_EQ(all.note(key(1), 1, 2, now), outcome::fresh);
    now += 1ms;
    EXPECT_EQ(all.note(key(1), 3, 1, now), outcome::fresh) << "in the place of the silent one";
    EXPECT_EQ(all.note(key(3), 1, 1, now), outcome::fresh);
    EXPECT_EQ(all.runs(), 3u);
    EXPECT_EQ(all.note(key(1), 1, 2, now), outcome::repeated);
}

TEST(signed_broadcast, tells_who_signed_to_who_asks_for_it) {
    const auto time = std::chrono::system_clock::now();
    const detail::test_lab lab;
    const auto one = lab.trust_of(lab.authority.issue({.name = "one"}));
    station from(one, time), to(lab.trust, time);
    std::vector<std::string> signers;
    listen_to_signed(*to.on, [&](const_bytes, const identity& by) { signers.push_back(by.name); });
    to.hears(from.says("hello"));
    EXPECT_EQ(signers, words{"one"});
    EXPECT_TRUE(to.heard.empty()) << "the earlier receiver was replaced";
    try {
        listen_to_signed(*to.raw, [](const_bytes, const identity&) {});
        ADD_FAILURE() << "nobody signs on that medium";
    } catch (const error& why) {
        EXPECT_EQ(why.code(), errc::invalid);
    }
}

}  // namespace
}  // namespace amalgam
