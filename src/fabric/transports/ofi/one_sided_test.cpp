// Puts and gets by libfabric's own operations, over providers in software, as a URI may ask.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <amalgam/core/random.hpp>

#include "contains.hpp"
#include "fabric/port/port_testing.hpp"
#include "fabric/registry/refusal_testing.hpp"
#include "fabric/transports/tcp/test_port.hpp"

namespace amalgam::detail {
namespace {

using namespace testing_support;

class ofi_one_sided_test : public testing::TestWithParam<std::string> {
protected:
    static constexpr std::size_t size = (std::size_t{5} << 20) + 100;  // Six pieces.

    void SetUp() override {
        const std::string where = "ofi+" + GetParam();
        auto opened = transport_registry::installed().open(where);
        if (opened.code() == errc::unsupported) GTEST_SKIP() << opened.sentence();
        a_ = std::make_unique<tcp_test_port>(std::move(opened).value());
        b_ = std::make_unique<tcp_test_port>(transport_registry::installed().open(where).value());
        std::tie(there_, back_) = connect(*a_, *b_);
    }
    void finish(const recorded& op) {
        move_until({a_.get(), b_.get()}, [&] { return op.runs > 0; });
    }
    status put(const_bytes from, const remote_key& key, std::uint64_t offset = 0) {
        recorded op;
        const posted how = a_->end->post_put(there_, {&from, 1}, key, offset, op);
        if (how == posted::done) return {};
        finish(op);
        return op.what;
    }
    status get(mutable_bytes into, const remote_key& key, std::uint64_t offset = 0) {
        recorded op;
        const posted how = a_->end->post_get(there_, {&into, 1}, key, offset, op);
        if (how == posted::done) return {};
        finish(op);
        return op.what;
    }
    /// The first transfer, in packets; on return libfabric's key is known.
    void warm_up(const remote_key& key) {
        std::byte one{};
        const std::uint64_t before = a_->end->transfers().direct;
        do {
            EXPECT_TRUE(get({&one, 1}, key).ok());
        } while (a_->end->transfers().direct == before);
    }

    std::unique_ptr<tcp_test_port> a_, b_;
    peer_id there_{}, back_{};
};

TEST_P(ofi_one_sided_test, transfers_need_no_packets_and_copies_only_without_connections) {
    std::vector<std::byte> far(size), back(size), near = pattern(size);
    const region target = b_->end->open_region(far, access::read_write).value();
    warm_up(target.key());
    const auto before = a_->end->transfers();
    const std::uint64_t served = b_->end->transfers().served;
    EXPECT_TRUE(put(near, target.key()).ok());
    EXPECT_EQ(far, near);
    EXPECT_TRUE(get(back, target.key()).ok());
    EXPECT_EQ(back, near);
    EXPECT_EQ(a_->end->transfers().direct, before.direct + 2);
    EXPECT_EQ(a_->end->transfers().direct_bytes, before.direct_bytes + 2 * size);
    const bool has_connections = GetParam().starts_with("tcp");
    EXPECT_EQ(a_->end->transfers().copied_bytes - before.copied_bytes,
              has_connections ? 0 : 2 * size);
    EXPECT_EQ(b_->end->transfers().served, served);
}

TEST_P(ofi_one_sided_test, every_segment_of_a_region_has_its_own_key) {
    seeded_random dice(3);
    std::vector<std::byte> far(200'000);
    std::vector<mutable_bytes> segments;
    for (std::size_t at = 0; segments.size() < 30;) {
        const std::size_t some = dice.below(6000);
        segments.push_back(mutable_bytes(far).subspan(at, some));
        at += some + 1;  // A byte between two belongs to none.
    }
    const region target = b_->end->open_region(segments, access::read_write).value();
    warm_up(target.key());
    std::vector<std::byte> model(target.bytes()), near = pattern(model.size(), 5);
    for (int i = 0; i < 30; ++i) {
        const std::size_t bytes = 1 + dice.below(model.size());
        const std::size_t offset = dice.below(model.size() - bytes + 1);
        const const_bytes some = const_bytes(near).subspan(model.size() - bytes - offset, bytes);
        ASSERT_TRUE(put(some, target.key(), offset).ok());
        std::copy(some.begin(), some.end(), model.begin() + static_cast<std::ptrdiff_t>(offset));
        std::vector<std::byte> back(model.size());
        ASSERT_TRUE(get(back, target.key()).ok());
        ASSERT_EQ(back, model);
    }
    for (std::size_t i = 0; i + 1 < segments.size(); ++i)
        ASSERT_EQ(*(segments[i].data() + segments[i].size()), std::byte{0});
}

TEST_P(ofi_one_sided_test, closed_region_and_right_that_it_does_not_grant_are_denied) {
    std::vector<std::byte> far = pattern(70'000), near(70'000, std::byte{9}), back(70'000);
    region target = b_->end->open_region(far, access::read).value();
    const remote_key key = target.key();
    warm_up(key);
    remote_key forged = key;
    forged.rights = access::read_write;
    EXPECT_EQ(put(near, forged).code, errc::denied);
    EXPECT_EQ(far, pattern(70'000));
    EXPECT_TRUE(get(back, key).ok());
    EXPECT_EQ(back, far);
    target = {};
    // Its key is known, so libfabric's target refuses it; that of tcp ends the connection, too.
    const errc how = get(back, key).code;
    EXPECT_EQ(how, GetParam().starts_with("tcp") ? errc::disconnected : errc::denied);
}

TEST_P(ofi_one_sided_test, many_transfers_at_once_each_complete_once) {
    std::vector<std::byte> far(1000 * 64), near = pattern(1000 * 64);
    const region target = b_->end->open_region(far, access::read_write).value();
    warm_up(target.key());
    std::vector<recorded> ops(1000);
    std::size_t done = 0;
    for (std::size_t i = 0; i < ops.size(); ++i) {
        const const_bytes some = const_bytes(near).subspan(64 * i, 64);
        posted how = posted::full;
        while ((how = a_->end->post_put(there_, {&some, 1}, target.key(), 64 * i, ops[i])) ==
               posted::full) {
            a_->end->progress();
            b_->end->progress();
        }
        if (how == posted::done) ++done, ++ops[i].runs;
    }
    move_until({a_.get(), b_.get()}, [&] {
        return std::all_of(ops.begin(), ops.end(), [](const recorded& op) { return op.runs > 0; });
    });
    EXPECT_TRUE(
        std::all_of(ops.begin(), ops.end(), [](const recorded& op) { return op.runs == 1; }));
    EXPECT_EQ(far, near);
}

TEST_P(ofi_one_sided_test, port_sleeps_while_its_target_stands_still_and_transfers_wait) {
    std::vector<std::byte> far(1000), near = pattern(1000);
    const region target = b_->end->open_region(far, access::read_write).value();
    warm_up(target.key());
    const const_bytes from = near;
    std::vector<recorded> ops(3000);
    for (recorded& op : ops)
        ASSERT_EQ(a_->end->post_put(there_, {&from, 1}, target.key(), 0, op), posted::pending);
    while (!a_->end->prepare_to_sleep())
        a_->end->progress();
    move_until({a_.get(), b_.get()}, [&] {
        return std::all_of(ops.begin(), ops.end(), [](const recorded& op) { return op.runs > 0; });
    });
    EXPECT_TRUE(std::all_of(ops.begin(), ops.end(),
                            [](const recorded& op) { return op.ended_with(errc::ok); }));
    EXPECT_EQ(far, near);
}

TEST_P(ofi_one_sided_test, put_leaves_memory_alone_that_can_only_be_read) {
    constexpr std::size_t some = 100'000;
    std::vector<std::byte> far(some);
    const region target = b_->end->open_region(far, access::read_write).value();
    warm_up(target.key());
    void* const at = ::mmap(nullptr, some, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(at, MAP_FAILED);
    std::fill(far.begin(), far.end(), std::byte{9});
    EXPECT_TRUE(put({static_cast<const std::byte*>(at), some}, target.key()).ok());
    EXPECT_EQ(far, std::vector<std::byte>(some));
    ::munmap(at, some);
}

TEST_P(ofi_one_sided_test, transfers_end_with_their_peer) {
    std::vector<std::byte> far(size), near = pattern(size);
    const region target = b_->end->open_region(far, access::read_write).value();
    warm_up(target.key());
    recorded op;
    const const_bytes from = near;
    ASSERT_EQ(a_->end->post_put(there_, {&from, 1}, target.key(), 0, op), posted::pending);
    b_->end->close(back_);
    finish(op);
    EXPECT_TRUE(op.what == errc::disconnected || op.what.ok()) << name(op.what.code);
    EXPECT_EQ(op.runs, 1u);
}

TEST_P(ofi_one_sided_test, memory_is_its_owners_again_once_the_port_has_ended) {
    std::vector<std::byte> far = pattern(size), back(size);
    const region target = b_->end->open_region(far, access::read_write).value();
    warm_up(target.key());
    recorded op;
    const mutable_bytes into = back;
    ASSERT_EQ(a_->end->post_get(there_, {&into, 1}, target.key(), 0, op), posted::pending);
    a_->end->progress();
    a_->end.reset();  // The target has not moved meanwhile.
    EXPECT_EQ(op.runs, 1u);
    std::fill(back.begin(), back.end(), std::byte{1});
    move_until({b_.get()}, [&] { return !b_->lost.empty(); });
    EXPECT_EQ(std::count(back.begin(), back.end(), std::byte{1}), static_cast<long>(size));
}

// "sockets" stands for all that reach others by name.
INSTANTIATE_TEST_SUITE_P(
    ofi, ofi_one_sided_test,
    testing::Values("tcp://127.0.0.1:0?one_sided=any",
                    "tcp://127.0.0.1:0?one_sided=any&mr_mode=basic",
                    "tcp://127.0.0.1:0?one_sided=any&mr_mode=local,virt_addr",
                    "tcp://127.0.0.1:0?one_sided=any&mr_mode=local,prov_key",
                    "sockets://127.0.0.1:0?one_sided=any",
                    "sockets://127.0.0.1:0?one_sided=any&mr_mode=basic,local"));

// Packets carry what would need more copies than a port may hold.
TEST(ofi_one_sided, copies_that_a_target_keeps_which_stands_still_are_bounded) {
    constexpr std::size_t size = 1 << 20;
    const std::string where = "ofi+sockets://127.0.0.1:0?one_sided=any";
    auto opened = transport_registry::installed().open(where);
    if (opened.code() == errc::unsupported) GTEST_SKIP() << opened.sentence();
    tcp_test_port here(std::move(opened).value());
    tcp_test_port there(transport_registry::installed().open(where).value());
    const peer_id to_there = connect(here, there).first;
    std::vector<std::byte> far = pattern(size), back(size);
    const region target = there.end->open_region(far, access::read).value();
    const mutable_bytes into = back;
    const auto get = [&](recorded& op) {
        return here.end->post_get(to_there, {&into, 1}, target.key(), 0, op);
    };
    const auto finish = [&](recorded& op) {
        move_until({&here, &there}, [&] { return op.runs > 0; });
    };
    while (here.end->transfers().direct == 0) {
        recorded op;
        ASSERT_EQ(get(op), posted::pending);
        finish(op);
    }
    const std::uint64_t served = there.end->transfers().served;
    for (int i = 0; i < 40; ++i) {
        recorded op;
        ASSERT_EQ(get(op), posted::pending);
        here.end->cancel(op);
        while (op.runs == 0)
            here.end->progress();
        EXPECT_TRUE(op.ended_with(errc::canceled));
    }
    std::fill(back.begin(), back.end(), std::byte{});
    recorded last;
    ASSERT_EQ(get(last), posted::pending);
    finish(last);
    EXPECT_TRUE(last.ended_with(errc::ok));
    EXPECT_EQ(back, far);
    EXPECT_GT(there.end->transfers().served, served);
    // Once libfabric has let go, it serves again.
    for (const std::uint64_t before = here.end->transfers().direct;
         here.end->transfers().direct == before;) {
        recorded op;
        ASSERT_EQ(get(op), posted::pending);
        finish(op);
    }
}

TEST(ofi_one_sided, port_without_answers_one_with_and_packets_carry_all) {
    const std::string plain = "ofi+tcp://127.0.0.1:0";
    tcp_test_port with(transport_registry::installed().open(plain + "?one_sided=any").value());
    tcp_test_port without(transport_registry::installed().open(plain).value());
    const auto [there, back] = connect(with, without);
    std::vector<std::byte> far(100'000), near = pattern(100'000);
    const region target = without.end->open_region(far, access::read_write).value();
    const const_bytes from = near;
    for (int i = 0; i < 3; ++i) {
        recorded op;
        ASSERT_EQ(with.end->post_put(there, {&from, 1}, target.key(), 0, op), posted::pending);
        move_until({&with, &without}, [&] { return op.runs > 0; });
        EXPECT_TRUE(op.ended_with(errc::ok));
    }
    EXPECT_EQ(far, near);
    EXPECT_EQ(with.end->transfers().direct, 0u);
    EXPECT_EQ(without.end->transfers().served, 3u);
    EXPECT_TRUE(with.lost.empty());
}

TEST(ofi_one_sided, kernel_copies_between_processes_of_one_host_where_it_is_asked_to) {
    for (const char* where :
         {"ofi+tcp://127.0.0.1:0?one_sided=host", "ofi+sockets://127.0.0.1:0?one_sided=host"}) {
        SCOPED_TRACE(where);
        auto opened = transport_registry::installed().open(where);
        if (opened.code() == errc::unsupported) GTEST_SKIP() << opened.sentence();
        tcp_test_port here(std::move(opened).value());
        tcp_test_port there(transport_registry::installed().open(where).value());
        const auto [to_there, to_here] = connect(here, there);
        EXPECT_TRUE(there.send(to_here, 1, "after the answer to the first question"));
        move_until({&here, &there}, [&] { return !here.arrived.empty(); });
        std::vector<std::byte> far(1 << 20), near = pattern(1 << 20), back(1 << 20);
        const region target = there.end->open_region(far, access::read_write).value();
        const const_bytes from = near;
        const mutable_bytes into = back;
        recorded op;
        EXPECT_EQ(here.end->post_put(to_there, {&from, 1}, target.key(), 0, op), posted::done);
        EXPECT_EQ(here.end->post_get(to_there, {&into, 1}, target.key(), 0, op), posted::done);
        EXPECT_EQ(far, near);
        EXPECT_EQ(back, near);
        EXPECT_EQ(here.end->transfers().direct, 2u);
        EXPECT_EQ(there.end->transfers().served, 0u);
        EXPECT_TRUE(contains(here.end->explain(),
                             "puts and gets to processes of this host are "
                             "copied directly by the kernel"))
            << here.end->explain();
    }
}

TEST(ofi_one_sided, provider_that_never_answers_a_refused_key_keeps_packets) {
    auto opened = transport_registry::installed().open("ofi+udp://127.0.0.1:0?one_sided=any");
    if (opened.code() == errc::unsupported) GTEST_SKIP() << opened.sentence();
    const std::string told = opened.value()->explain();
    EXPECT_TRUE(contains(told, "as libfabric's udp never answers a transfer whose key it refuses"))
        << told;
}

TEST(ofi_one_sided, port_explains_who_carries_its_transfers) {
    const auto told = [](const char* options) {
        return transport_registry::installed()
            .open(std::string("ofi+tcp://127.0.0.1:0") + options)
            .value()
            ->explain();
    };
    EXPECT_TRUE(contains(told(""),
                         "puts and gets go in packets, processed by the target's "
                         "progress, as software has a part in this provider's"))
        << told("");
    EXPECT_TRUE(contains(told("?one_sided=no"),
                         "go in packets, processed by the target's "
                         "progress, as the URI asks"))
        << told("?one_sided=no");
    EXPECT_TRUE(contains(told("?one_sided=any"),
                         "puts and gets are libfabric's own, processed by the target's progress, "
                         "as the URI asks: a region that closes while one is under way can still "
                         "be read or written by it"))
        << told("?one_sided=any");
}

TEST(ofi_one_sided, software_at_the_target_counts_as_emulated) {
    auto one = transport_registry::installed().open("ofi+tcp://127.0.0.1:0?one_sided=any").value();
    EXPECT_EQ(one->can().rma, rma_mode::emulated);
}

TEST(ofi_one_sided, wrong_options_are_refused_in_one_sentence) {
    EXPECT_TRUE(contains(refusal("ofi+tcp://127.0.0.1:0?one_sided=maybe"),
                         "one_sided is \"maybe\", but must be any, host or no; example: "));
    EXPECT_TRUE(contains(refusal("ofi+tcp://127.0.0.1:0?mr_mode=basic,odd"),
                         "mr_mode has \"odd\", but knows basic, local, virt_addr and prov_key, "
                         "with commas; example: "));
    EXPECT_TRUE(contains(refusal("ofi+tcp://127.0.0.1:0?speed=high"),
                         "unknown option \"speed\": ofi has one_sided; example: "));
}

}  // namespace
}  // namespace amalgam::detail
