// What a peer tells of its regions, true or not, and what is kept of it.
#include "fabric/one_sided/peer_keys.hpp"

#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fabric/one_sided/frames.hpp"
#include "fabric/one_sided/memory_device_testing.hpp"
#include "fabric/one_sided/packetless_link_testing.hpp"
#include "fabric/port/scripted_port.hpp"

namespace amalgam::detail {
namespace {

class peer_keys_test : public testing::Test {
protected:
    static constexpr std::uint64_t region_bytes = 100;

    struct teller {
        scripted_link link;
        packetless_link by;
        one_sided_peer peer{link, by};
    };

    ~peer_keys_test() override { keys_.forget(one_.peer); }

    static remote_key region(std::uint64_t number) {
        remote_key key;
        key.secret = 5;
        key.region = number;
        key.bytes = region_bytes;
        key.rights = access::read_write;
        return key;
    }
    known_key* find(std::uint64_t number) { return keys_.find(one_.peer, region(number)); }
    std::size_t questions() const { return one_.link.out.size(); }
    /// The tag of the question about this region.
    std::uint64_t ask(std::uint64_t number) {
        EXPECT_EQ(find(number), nullptr);
        return one_.link.out.back().header.tag;
    }
    /// `told`: the length of the device's key; this one's are of 16 bytes.
    delivery answer(std::uint64_t tag, const key_answer& what, std::size_t told = 16) {
        return answer_of(one_, tag, what, told);
    }
    delivery answer_of(teller& who, std::uint64_t tag, const key_answer& what,
                       std::size_t told = 16) {
        std::vector<std::byte> payload(key_answer::wire_bytes + told);
        what.encode(payload.data());
        return keys_.on_answer(who.peer, tag, payload);
    }
    known_key& learn(std::uint64_t number) {
        EXPECT_EQ(answer(ask(number), {0, 1, region_bytes}), delivery::taken);
        return *find(number);
    }

    memory_device::settings with_;
    memory_device device_{with_};
    peer_keys keys_{device_};
    teller one_;
};

TEST_F(peer_keys_test, region_is_open_once_all_of_its_segments_are_known) {
    const std::uint64_t tag = ask(1);
    EXPECT_EQ(answer(tag, {0, 4, 60}), delivery::taken);
    EXPECT_EQ(answer(tag, {1, 4, 0}, 0), delivery::taken);  // Nothing is exposed of it.
    EXPECT_EQ(answer(tag, {2, 4, 1}), delivery::taken);
    EXPECT_EQ(find(1), nullptr);
    EXPECT_EQ(answer(tag, {3, 4, 39}), delivery::taken);
    const known_key* const one = find(1);
    ASSERT_NE(one, nullptr);
    const std::pair<std::uint64_t, std::uint64_t> starts[] = {
        {0, 0}, {59, 0}, {60, 60}, {61, 61}, {99, 61}};
    for (const auto& [offset, start] : starts)
        EXPECT_EQ(peer_keys::segment_at(*one, offset).start, start) << offset;
    EXPECT_EQ(with_.opened, 3u);
    EXPECT_EQ(questions(), 1u);
}

TEST_F(peer_keys_test, segments_that_do_not_add_up_to_the_region_are_malformed) {
    const std::vector<std::vector<key_answer>> wrong = {
        {{0, 1, 99}},
        {{0, 1, 101}},
        {{0, 2, 101}},
        {{0, 2, ~std::uint64_t{0}}},
        {{0, 2, 60}, {1, 2, 39}},
        {{0, 2, 60}, {1, 2, 41}},
        {{0, 2, 60}, {1, 2, ~std::uint64_t{0}}},
        {{1, 2, 60}},              // Not the first.
        {{0, 2, 60}, {0, 2, 40}},  // The first one again.
        {{0, 3, 60}, {2, 3, 40}},  // One is left out.
        {{0, peer_keys::max_segments + 1, 1}}};
    std::uint64_t number = 0;
    for (const auto& answers : wrong) {
        const std::uint64_t tag = ask(++number);
        for (std::size_t i = 0; i < answers.size(); ++i)
            EXPECT_EQ(answer(tag, answers[i]),
                      i + 1 < answers.size() ? delivery::taken : delivery::malformed)
                << number;
        EXPECT_EQ(find(number), nullptr);
    }
}

TEST_F(peer_keys_test, answers_of_a_wrong_length_are_malformed) {
    const std::uint64_t tag = ask(1);
    const std::vector<std::byte> some(key_answer::wire_bytes - 1);
    EXPECT_EQ(keys_.on_answer(one_.peer, tag, some), delivery::malformed);
    EXPECT_EQ(keys_.on_answer(one_.peer, tag, {}), delivery::malformed);
    const std::size_t most = one_sided_carrier::max_key_bytes;
    EXPECT_EQ(answer(tag, {0, 1, region_bytes}, most + 1), delivery::malformed);
    EXPECT_EQ(answer(tag, {0, 1, region_bytes}, most), delivery::taken);
    EXPECT_EQ(find(1), nullptr) << "the device has no such key";
    EXPECT_EQ(questions(), 1u) << "packets carry its transfers from now on";
}

TEST_F(peer_keys_test, answer_to_what_was_never_asked_is_malformed_and_a_late_one_is_dropped) {
    const std::uint64_t tag = ask(1);
    EXPECT_EQ(answer(tag + 1, {0, 1, region_bytes}), delivery::malformed);
    EXPECT_EQ(answer(tag, {0, 1, region_bytes}), delivery::taken);
    for (const key_answer& late : {key_answer{0, 1, region_bytes}, key_answer{}})
        EXPECT_EQ(answer(tag, late), delivery::taken);
    EXPECT_NE(find(1), nullptr);
    EXPECT_EQ(with_.opened, 1u);
}

TEST_F(peer_keys_test, key_that_is_not_the_one_that_was_asked_for_opens_nothing) {
    (void)learn(1);
    remote_key forged = region(1);
    forged.secret ^= 1;
    EXPECT_EQ(keys_.find(one_.peer, forged), nullptr);
    EXPECT_NE(find(1), nullptr);
    EXPECT_EQ(questions(), 1u);
}

TEST_F(peer_keys_test, right_key_is_asked_about_after_there_was_none_for_a_wrong_one) {
    remote_key forged = region(1);
    forged.secret ^= 1;
    EXPECT_EQ(keys_.find(one_.peer, forged), nullptr);
    EXPECT_EQ(answer(one_.link.out.back().header.tag, key_answer{}, 0), delivery::taken);
    EXPECT_EQ(keys_.find(one_.peer, forged), nullptr);
    EXPECT_EQ(questions(), 1u) << "packets carry its transfers, and the target refuses them";
    (void)learn(1);
    EXPECT_EQ(questions(), 2u);
    EXPECT_EQ(with_.opened, 1u);
}

TEST_F(peer_keys_test, refusal_after_some_segments_closes_their_keys) {
    const std::uint64_t tag = ask(1);
    EXPECT_EQ(answer(tag, {0, 2, 60}), delivery::taken);
    EXPECT_EQ(answer(tag, {}), delivery::taken);
    EXPECT_EQ(with_.opened, 1u);
    EXPECT_EQ(with_.closed, 1u);
    EXPECT_EQ(find(1), nullptr);
    EXPECT_EQ(questions(), 1u) << "what was answered is remembered";
}

TEST_F(peer_keys_test, questions_about_regions_that_closed_count_until_they_are_answered) {
    constexpr std::uint64_t most = peer_keys::max_questions;
    for (std::uint64_t number = 1; number <= most; ++number) {
        (void)ask(number);
        EXPECT_EQ(keys_.on_gone(one_.peer, number), delivery::taken);
    }
    const auto asks_more = [&] {
        const std::size_t before = questions();
        for (int i = 0; i < 3; ++i)
            EXPECT_EQ(find(1000 + before), nullptr);
        return questions() - before;
    };
    EXPECT_EQ(asks_more(), 0u);
    EXPECT_EQ(answer(one_.link.out[0].header.tag, {}), delivery::taken);
    EXPECT_EQ(asks_more(), 1u);
    EXPECT_EQ(asks_more(), 0u);
    const std::uint64_t second = one_.link.out[1].header.tag;
    EXPECT_EQ(answer(second, {0, 2, 60}), delivery::taken);
    EXPECT_EQ(asks_more(), 0u) << "another answer follows";
    EXPECT_EQ(answer(second, {1, 2, 40}), delivery::taken);
    EXPECT_EQ(asks_more(), 1u);
    EXPECT_EQ(with_.opened, 0u);
}

TEST_F(peer_keys_test, answers_that_repeat_themselves_make_no_room_for_questions) {
    const std::uint64_t first = ask(1);
    EXPECT_EQ(answer(first, {}), delivery::taken);
    for (std::uint64_t number = 2; number <= 1 + peer_keys::max_questions; ++number)
        (void)ask(number);
    for (int i = 0; i < 5; ++i)
        EXPECT_EQ(answer(first, {}), delivery::taken);
    const std::size_t before = questions();
    EXPECT_EQ(find(1000), nullptr);
    EXPECT_EQ(questions(), before);
}

TEST_F(peer_keys_test, key_in_use_is_closed_with_its_last_use_after_its_region) {
    known_key& one = learn(1);
    peer_keys::use(one);
    peer_keys::use(one);
    EXPECT_EQ(keys_.on_gone(one_.peer, 1), delivery::taken);
    EXPECT_EQ(find(1), nullptr);
    EXPECT_EQ(with_.closed, 0u);
    keys_.leave(one_.peer, one);
    EXPECT_EQ(with_.closed, 0u);
    keys_.leave(one_.peer, one);
    EXPECT_EQ(with_.closed, 1u);
    EXPECT_TRUE(one_.peer.dropped.empty());
}

TEST_F(peer_keys_test, of_too_many_keys_the_one_unused_for_longest_goes) {
    known_key& used = learn(1);
    peer_keys::use(used);
    for (std::uint64_t number = 2; number <= peer_keys::max_per_peer; ++number)
        (void)learn(number);
    EXPECT_EQ(with_.closed, 0u);
    EXPECT_NE(find(2), nullptr);
    const std::uint64_t next = peer_keys::max_per_peer + 1;
    (void)learn(next);
    EXPECT_EQ(with_.closed, 1u);
    EXPECT_EQ(one_.peer.keys.size(), peer_keys::max_per_peer);
    EXPECT_EQ(one_.peer.keys.count(1), 1u) << "in use";
    EXPECT_EQ(one_.peer.keys.count(2), 1u) << "used a moment ago";
    EXPECT_EQ(one_.peer.keys.count(3), 0u);
    keys_.leave(one_.peer, used);
}

TEST_F(peer_keys_test, keys_of_all_peers_together_are_bounded) {
    std::deque<teller> others;
    for (std::size_t i = 0; i < peer_keys::max_in_all / peer_keys::max_per_peer; ++i) {
        teller& who = others.emplace_back();
        for (std::uint64_t number = 1; number <= peer_keys::max_per_peer; ++number) {
            EXPECT_EQ(keys_.find(who.peer, region(number)), nullptr);
            ASSERT_EQ(who.link.out.size(), 1u);
            (void)answer_of(who, who.link.out[0].header.tag, {0, 1, region_bytes});
            who.link.out.clear();
        }
    }
    EXPECT_EQ(find(1), nullptr);
    EXPECT_EQ(questions(), 0u) << "it has none to make room with";
    keys_.forget(others.front().peer);
    EXPECT_EQ(find(1), nullptr);
    EXPECT_EQ(questions(), 1u);
    for (teller& who : others)
        keys_.forget(who.peer);
}

}  // namespace
}  // namespace amalgam::detail
