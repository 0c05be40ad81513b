// What a target tells of its regions: over links that are full, and of regions that close
// meanwhile.
#include "fabric/one_sided/exposures.hpp"

#include <cstring>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fabric/one_sided/frames.hpp"
#include "fabric/one_sided/memory_device_testing.hpp"
#include "fabric/one_sided/packetless_link_testing.hpp"
#include "fabric/one_sided/peer_keys.hpp"
#include "fabric/rma/region_table.hpp"

namespace amalgam::detail {
namespace {

/// A link that takes so many frames.
struct narrow_link final : frame_link {
    struct frame {
        frame_header header;
        std::vector<std::byte> payload;

        key_answer answer() const { return key_answer::decode(payload.data()); }
        bool is_refusal() const { return header.kind == key_answer_kind && answer().count == 0; }
    };

    posted send(const frame_header& header, gather payload, completion*) noexcept override {
        if (room == 0) return posted::full;
        --room;
        out.push_back({header, std::vector<std::byte>(total_bytes(payload))});
        copy_out(payload, out.back().payload.data());
        return posted::done;
    }
    bool forget(completion&) noexcept override { return false; }
    void detach(completion&) noexcept override {}
    void shut() noexcept override {}

    std::size_t room = 1000;
    std::vector<frame> out;
};

/// A port of which only the regions matter.
struct home_of_regions final : one_sided_home {
    const region_entry* region_of(const remote_key& key) noexcept override {
        return all.check(key, 0, 0, key.rights);
    }
    void transfer_over(completion&, status, std::size_t) noexcept override {}
    void go_on_by_packets(one_sided_peer&, const rma_rest&, completion&) noexcept override {}
    void transfers_over(one_sided_peer&) noexcept override {}

    region_table all{77};
};

class exposures_test : public testing::Test {
protected:
    struct asker {
        narrow_link link;
        packetless_link by;
        one_sided_peer peer{link, by};
    };

    remote_key open(std::size_t parts) {
        std::vector<mutable_bytes> segments;
        for (std::size_t i = 0; i < parts; ++i)
            segments.push_back(mutable_bytes(memory_).subspan(i * 10, 10));
        return home_.all.open(segments, access::read_write).value();
    }
    /// As a port does.
    void close(const remote_key& key) {
        here_.close(key, {&one_.peer, &other_.peer});
        home_.all.close(key.region);
    }
    delivery ask(asker& who, const remote_key& key, std::uint64_t tag = 1) {
        const auto wire = key.encode();
        return here_.on_question(who.peer, tag, wire);
    }

    memory_device::settings with_;
    memory_device device_{with_};
    home_of_regions home_;
    exposures here_{device_, home_};
    asker one_, other_;
    std::vector<std::byte> memory_ = std::vector<std::byte>(1000);
};

TEST_F(exposures_test, answer_that_finds_the_link_full_goes_on_where_it_stopped) {
    one_.link.room = 2;
    EXPECT_EQ(ask(one_, open(5), 9), delivery::taken);
    for (const std::size_t room : {0, 1, 1, 100, 100}) {
        one_.link.room = room;
        here_.pump(one_.peer);
    }
    ASSERT_EQ(one_.link.out.size(), 5u);
    for (std::uint16_t i = 0; i < 5; ++i) {
        const auto& frame = one_.link.out[i];
        EXPECT_EQ(frame.header.kind, key_answer_kind);
        EXPECT_EQ(frame.header.tag, 9u);
        EXPECT_EQ(frame.answer().index, i);
        EXPECT_EQ(frame.answer().count, 5u);
        EXPECT_EQ(frame.answer().bytes, 10u);
    }
}

TEST_F(exposures_test, region_that_closes_while_its_answer_waits_is_refused_and_then_gone) {
    const remote_key key = open(5);
    one_.link.room = 2;
    EXPECT_EQ(ask(one_, key), delivery::taken);
    close(key);
    one_.link.room = 100;
    here_.pump(one_.peer);
    ASSERT_EQ(one_.link.out.size(), 4u);
    EXPECT_TRUE(one_.link.out[2].is_refusal());
    EXPECT_EQ(one_.link.out[3].header.kind, key_gone_kind);
    EXPECT_EQ(one_.link.out[3].header.tag, key.region);
    EXPECT_EQ(ask(one_, key), delivery::taken);
    EXPECT_TRUE(one_.link.out.back().is_refusal());
}

// The link has room again, and nobody was told yet.
TEST_F(exposures_test, region_that_closes_is_not_exposed_again_to_who_waits_for_its_keys) {
    const remote_key key = open(5);
    one_.link.room = 2;
    EXPECT_EQ(ask(one_, key), delivery::taken);
    one_.link.room = 100;
    const std::size_t before = with_.exposures;
    close(key);
    EXPECT_EQ(with_.exposures, before);
    ASSERT_EQ(one_.link.out.size(), 4u);
    EXPECT_TRUE(one_.link.out[2].is_refusal());
    EXPECT_EQ(one_.link.out[3].header.kind, key_gone_kind);
}

TEST_F(exposures_test, end_of_a_region_is_told_once_to_each_who_knows_it) {
    const remote_key key = open(1), unknown = open(1);
    EXPECT_EQ(ask(one_, key), delivery::taken);
    EXPECT_EQ(ask(one_, key, 2), delivery::taken) << "again, as its room for keys is bounded";
    close(unknown);
    close(key);
    ASSERT_EQ(one_.link.out.size(), 3u);
    EXPECT_EQ(one_.link.out[2].header.kind, key_gone_kind);
    EXPECT_EQ(one_.link.out[2].header.tag, key.region);
    EXPECT_TRUE(one_.link.out[2].payload.empty());
    EXPECT_TRUE(other_.link.out.empty());
}

TEST_F(exposures_test, questions_past_those_that_may_wait_are_malformed) {
    const remote_key key = open(2);
    one_.link.room = 1;  // The first one is answered in part.
    for (std::size_t i = 0; i < peer_keys::max_questions; ++i)
        EXPECT_EQ(ask(one_, key, i), delivery::taken);
    EXPECT_EQ(ask(one_, key), delivery::malformed);
    EXPECT_EQ(ask(other_, key), delivery::taken) << "of another peer";
    one_.link.room = 1000;
    here_.pump(one_.peer);
    EXPECT_EQ(one_.link.out.size(), 2 * peer_keys::max_questions);
    one_.link.room = 0;
    for (std::size_t i = 0; i < peer_keys::max_questions; ++i)
        EXPECT_EQ(ask(one_, key, i), delivery::taken) << "answered ones do not count";
    EXPECT_EQ(ask(one_, key), delivery::malformed);
}

TEST_F(exposures_test, questions_of_a_wrong_length_are_malformed) {
    std::vector<std::byte> payload(key_question_bytes + one_sided_carrier::max_name_bytes + 1);
    for (const std::size_t bytes : {std::size_t{0}, key_question_bytes - 1, payload.size()})
        EXPECT_EQ(here_.on_question(one_.peer, 1, const_bytes(payload).first(bytes)),
                  delivery::malformed);
    EXPECT_EQ(here_.on_question(one_.peer, 1, const_bytes(payload).first(payload.size() - 1)),
              delivery::taken);
    EXPECT_EQ(one_.peer.name.size(), one_sided_carrier::max_name_bytes);
}

TEST_F(exposures_test, key_that_opens_nothing_exposes_nothing) {
    const remote_key key = open(1);
    std::vector<remote_key> wrong(5, key);
    wrong[0].secret ^= 1;
    wrong[1].incarnation ^= 1;
    wrong[2].bytes += 1;
    wrong[3].rights = access::read;
    wrong[4] = open(0);  // Has no bytes.
    for (const remote_key& each : wrong) {
        EXPECT_EQ(ask(one_, each), delivery::taken);
        EXPECT_TRUE(one_.link.out.back().is_refusal());
    }
    EXPECT_EQ(one_.link.out.size(), wrong.size());
    EXPECT_EQ(with_.exposures, 0u);
    close(key);
    EXPECT_EQ(one_.link.out.size(), wrong.size()) << "it was told of none";
}

TEST_F(exposures_test, segment_that_cannot_be_exposed_ends_the_answer) {
    const remote_key key = open(3);
    one_.link.room = 2;
    EXPECT_EQ(ask(one_, key), delivery::taken);
    with_.exposes = false;
    one_.link.room = 100;
    here_.pump(one_.peer);
    ASSERT_EQ(one_.link.out.size(), 3u);
    EXPECT_TRUE(one_.link.out[2].is_refusal());
    close(key);  // What was exposed before is hidden.
    EXPECT_EQ(one_.link.out.back().header.kind, key_gone_kind);
}

}  // namespace
}  // namespace amalgam::detail
