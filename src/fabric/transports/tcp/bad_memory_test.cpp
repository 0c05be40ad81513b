// Memory that cannot be read or written, such as truncated files and read-only pages: only its
// operation fails.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "emulated.hpp"
#include "fabric/memory/truncated_file.hpp"
#include "fabric/transports/tcp/test_port.hpp"
#include "fabric/trust/tls/tls_testing.hpp"

namespace amalgam::detail {
namespace {

constexpr std::size_t page = 4096;

std::shared_ptr<const credentials> lab_trust() {
    static const test_lab lab;
    return lab.trust;
}

class bad_memory : public testing::TestWithParam<const char*> {
protected:
    using operation = tcp_test_port::operation;

    void SetUp() override {
        if (is_emulated()) GTEST_SKIP() << qemu_reads_for_the_kernel;
        std::tie(there_id_, here_id_) = connect(here_, there_);
    }
    errc outcome(operation& op) {
        move_until({&here_, &there_}, [&] { return op.over; });
        return op.code;
    }
    errc put(const_bytes from, const region& to) {
        operation op;
        (void)here_.end->post_put(there_id_, {&from, 1}, to.key(), 0, op);
        return outcome(op);
    }
    errc get(mutable_bytes into, const region& from) {
        operation op;
        (void)here_.end->post_get(there_id_, {&into, 1}, from.key(), 0, op);
        return outcome(op);
    }
    void expect_connected() {
        ASSERT_TRUE(here_.send(there_id_, 5, "still there"));
        move_until({&here_, &there_}, [&] { return !there_.arrived.empty(); });
        there_.arrived.clear();
        EXPECT_TRUE(here_.lost.empty());
        EXPECT_TRUE(there_.lost.empty());
    }

    // A stalled sender is checked after a quarter of the limit.
    const port_options quick_{.silence_limit = std::chrono::milliseconds(400),
                              .trust = lab_trust()};
    tcp_test_port here_{GetParam(), quick_}, there_{GetParam(), quick_};
    peer_id there_id_, here_id_;
    std::vector<std::byte> memory_ = std::vector<std::byte>(4 << 20);
    region all_ = there_.end->open_region(memory_, access::read_write).value();
};

TEST_P(bad_memory, a_put_from_a_truncated_file_fails_alone) {
    for (std::size_t left : {std::size_t{0}, page, 20 * page, 70 * page, 1000 * page}) {
        SCOPED_TRACE(left);
        truncated_file file(memory_.size());
        file.truncate(left);
        EXPECT_EQ(put(file.bytes(), all_), errc::invalid);
        EXPECT_EQ(put(const_bytes(file.bytes()).first(left), all_), errc::ok);
        expect_connected();
    }
    EXPECT_EQ(here_.end->open_operations(), 0u);
}

TEST_P(bad_memory, puts_behind_one_that_cannot_be_read_go_on) {
    truncated_file file(memory_.size());
    file.truncate(page);
    const const_bytes bad = file.bytes(), good = memory_;
    std::vector<operation> ops(12);
    for (std::size_t i = 0; i < ops.size(); ++i)
        (void)here_.end->post_put(there_id_, i % 3 == 1 ? gather(&good, 1) : gather(&bad, 1),
                                  all_.key(), 0, ops[i]);
    for (std::size_t i = 0; i < ops.size(); ++i)
        EXPECT_EQ(outcome(ops[i]), i % 3 == 1 ? errc::ok : errc::invalid) << i;
    expect_connected();
}

TEST_P(bad_memory, a_message_of_which_nothing_left_fails_alone) {
    truncated_file file(1 << 20);
    file.truncate(0);
    const const_bytes bytes = file.bytes();
    operation op;
    EXPECT_EQ(here_.end->post_send(there_id_, 1, {&bytes, 1}, op), posted::pending);
    EXPECT_EQ(outcome(op), errc::invalid);
    expect_connected();
}

TEST_P(bad_memory, a_message_of_which_half_left_ends_its_connection_at_once) {
    truncated_file file(1 << 20);
    const const_bytes bytes = file.bytes();
    operation waiting;
    std::vector<std::byte> room(10);
    ASSERT_EQ(here_.end->post_receive(there_id_, 9, room, waiting), posted::pending);
    // The first is longer than the socket takes, so the second is begun and waits.
    std::vector<operation> ops(16);
    for (operation& op : ops)
        ASSERT_NE(here_.end->post_send(there_id_, 1, {&bytes, 1}, op), posted::full);
    file.truncate(0);
    move_until({&here_, &there_}, [&] { return !here_.lost.empty(); });
    EXPECT_EQ(here_.lost.front().second.native, EFAULT);
    EXPECT_EQ(waiting.code, errc::disconnected);
    EXPECT_EQ(here_.end->open_operations(), 0u);
}

TEST_P(bad_memory, a_get_into_read_only_memory_fails_alone) {
    for (std::size_t bytes : {std::size_t{8}, page, 20 * page, 256 * page}) {
        SCOPED_TRACE(bytes);
        truncated_file file(256 * page, PROT_READ);
        EXPECT_EQ(get(file.bytes().first(bytes), all_), errc::invalid);
        expect_connected();
    }
}

TEST_P(bad_memory, a_put_into_read_only_memory_is_refused_by_its_owner) {
    truncated_file file(256 * page, PROT_READ);
    const region shown = there_.end->open_region(file.bytes(), access::read_write).value();
    for (std::size_t bytes : {std::size_t{8}, page, 20 * page, 256 * page}) {
        SCOPED_TRACE(bytes);
        EXPECT_EQ(put(const_bytes(memory_).first(bytes), shown), errc::invalid);
        expect_connected();
    }
}

TEST_P(bad_memory, small_transfers_of_a_truncated_file_fail_alone_on_either_side) {
    truncated_file file(page);
    const region shown = there_.end->open_region(file.bytes(), access::read_write).value();
    EXPECT_EQ(get(mutable_bytes(memory_).first(100), shown), errc::ok);
    file.truncate(0);
    EXPECT_EQ(get(mutable_bytes(memory_).first(100), shown), errc::invalid);
    EXPECT_EQ(put(const_bytes(memory_).first(100), shown), errc::invalid);
    EXPECT_EQ(put(const_bytes(file.bytes()).first(100), all_), errc::invalid);
    EXPECT_EQ(get(file.bytes().first(100), all_), errc::invalid);
    expect_connected();
}

TEST_P(bad_memory, an_atomic_operation_on_what_cannot_be_written_is_refused_by_its_owner) {
    truncated_file shrinks(2 * page), fixed(page, PROT_READ);
    const region first = there_.end->open_region(shrinks.bytes(), access::read_write).value();
    const region second = there_.end->open_region(fixed.bytes(), access::read_write).value();
    std::uint64_t old = 7;
    const auto add = [&](const region& to, std::uint64_t offset) {
        operation op;
        (void)here_.end->post_fetch_add(there_id_, to.key(), offset, 1, &old, op);
        return outcome(op);
    };
    EXPECT_EQ(add(first, page), errc::ok);
    EXPECT_EQ(old, 0u);
    shrinks.truncate(page);
    EXPECT_EQ(add(first, page), errc::invalid);
    EXPECT_EQ(add(first, page - 8), errc::ok);
    EXPECT_EQ(add(second, 0), errc::invalid);
    expect_connected();
}

TEST_P(bad_memory, a_notified_put_that_cannot_be_read_or_written_tells_nothing) {
    for (std::size_t bytes : {2 * page, 20 * page, 256 * page}) {
        SCOPED_TRACE(bytes);
        truncated_file from(256 * page), to(256 * page);
        const region shown = there_.end->open_region(to.bytes(), access::read_write).value();
        const auto put_notify = [&](const region& where) {
            const const_bytes some = from.bytes().first(bytes);
            operation op;
            (void)here_.end->post_put_notify(there_id_, {&some, 1}, where.key(), 0, 1, op);
            return outcome(op);
        };
        to.truncate(bytes / 2);
        EXPECT_EQ(put_notify(shown), errc::invalid);
        to.truncate(0);
        EXPECT_EQ(put_notify(shown), errc::invalid);
        from.truncate(bytes / 2);
        EXPECT_EQ(put_notify(all_), errc::invalid);
        from.truncate(0);
        EXPECT_EQ(put_notify(all_), errc::invalid);
        expect_connected();
        EXPECT_TRUE(there_.notices.empty());
    }
}

TEST_P(bad_memory, notified_puts_whose_memory_goes_away_halfway_tell_only_of_whole_ones) {
    truncated_file file(1 << 20);
    const const_bytes bytes = file.bytes();
    std::fill(file.bytes().begin(), file.bytes().end(), std::byte{1});
    // Longer than the socket takes, so one is begun and the others wait.
    std::vector<operation> ops(16);
    for (operation& op : ops)
        ASSERT_NE(here_.end->post_put_notify(there_id_, {&bytes, 1}, all_.key(), 0, 1, op),
                  posted::full);
    file.truncate(0);
    there_.on_notice = [&](const put_notice& told) {
        EXPECT_EQ(told.bytes, bytes.size());
        EXPECT_EQ(std::count(memory_.begin(), memory_.begin() + (1 << 20), std::byte{1}), 1 << 20);
    };
    move_until({&here_, &there_}, [&] { return !here_.lost.empty() && !there_.lost.empty(); });
    EXPECT_LT(there_.notices.size(), ops.size());
    for (operation& op : ops)
        EXPECT_TRUE(op.over);
    EXPECT_EQ(here_.end->open_operations(), 0u);
}

// Replies to gets are copied up to 8,192 bytes, including 8 bytes of offset.
TEST_P(bad_memory, a_get_of_8184_bytes_from_a_truncated_file_fails_alone) {
    for (std::size_t left : {std::size_t{0}, page}) {
        SCOPED_TRACE(left);
        truncated_file file(2 * page);
        const region shown = there_.end->open_region(file.bytes(), access::read).value();
        file.truncate(left);
        EXPECT_EQ(get(mutable_bytes(memory_).first(8184), shown), errc::invalid);
        expect_connected();
    }
}

INSTANTIATE_TEST_SUITE_P(tcp, bad_memory, testing::Values("tcp://127.0.0.1:0"));
INSTANTIATE_TEST_SUITE_P(tls, bad_memory, testing::Values("tcp+tls://127.0.0.1:0"));

}  // namespace
}  // namespace amalgam::detail
