// Large messages cross in pieces. What their reader gets when memory is wanted back halfway, and
// when one of the two leaves.
#include <algorithm>
#include <array>
#include <csignal>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "fabric/frames/rma_frames.hpp"
#include "fabric/limits.hpp"
#include "fabric/transports/shm/port.hpp"
#include "fabric/transports/shm/raw_peer.hpp"
#include "fabric/transports/shm/test_port.hpp"

namespace amalgam::detail {
namespace {

constexpr std::size_t message_bytes = 600'000;  // More than two rings hold.

/// A port that sends, and a peer that reads when it is told to.
struct shm_pieces : testing::Test {
    /// A large frame, as far as it has been read.
    struct frame {
        frame_header header;
        std::vector<std::byte> bytes;
        bool whole() const { return bytes.size() == header.bytes; }
    };

    shm_pieces() {
        for (std::size_t i = 0; i < bytes.size(); ++i)
            bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
        sent = bytes;
        greet(peer, here);
        hear_from(peer);
    }
    /// Returns once the port has taken all that a peer has written so far.
    void hear_from(shm_raw_peer& who) {
        const std::size_t before = here.tags.size();
        who.write(frame_kind::unexpected, 0, {});
        move_until({&here}, [&] { return here.tags.size() > before; });
    }
    void read_some() {
        peer.take_all([&](const frame_header& header, const_bytes payload) {
            if (header.kind != shm_piece_kind)
                frames.push_back({header, {}});
            else
                EXPECT_LE(payload.size(), limits::shm_piece_bytes);
            auto& to = frames.back().bytes;
            to.insert(to.end(), payload.begin(), payload.end());
        });
    }
    /// Reads until so many frames are whole.
    void read(std::size_t count) {
        move_until({&here}, [&] {
            read_some();
            return frames.size() == count && frames.back().whole();
        });
    }
    /// Calls progress() more often than a message takes, if it can go on at all.
    void let_go_on() {
        for (int i = 0; i < 100; ++i)
            here.progress();
    }
    posted send(std::uint64_t tag, recorded& op) {
        const const_bytes all(bytes);
        segments = {all.first(100), all.subspan(100, 99'900), all.subspan(100'000)};
        return here.end().post_send(here.from, tag, segments, op);
    }
    /// Its owner has other use for the memory.
    void reuse_memory() { std::fill(bytes.begin(), bytes.end(), std::byte{1}); }
    void expect_sent(const frame& one, std::size_t prefix, std::size_t from, std::size_t count) {
        ASSERT_EQ(one.bytes.size(), prefix + count);
        EXPECT_TRUE(std::equal(one.bytes.begin() + static_cast<std::ptrdiff_t>(prefix),
                               one.bytes.end(), sent.begin() + static_cast<std::ptrdiff_t>(from)));
    }
    std::size_t lent() { return static_cast<shm_port&>(here.end()).lent().taken(); }

    shm_test_port here{"shm://"};
    shm_raw_peer peer{here.end().address()};
    std::vector<std::byte> bytes{std::vector<std::byte>(message_bytes)};
    std::vector<std::byte> sent;
    std::array<const_bytes, 3> segments;
    std::vector<frame> frames;
    recorded done;
};

TEST_F(shm_pieces, message_of_several_segments_arrives_whole_and_in_order) {
    ASSERT_EQ(send(7, done), posted::pending);
    read(1);
    EXPECT_EQ(frames[0].header.tag, 7u);
    expect_sent(frames[0], 0, 0, message_bytes);
    EXPECT_TRUE(done.ended_with(errc::ok));
    EXPECT_EQ(lent(), 0u);
}

/// Memory that runs a function whenever one of its pages is read for the first time.
class watched_memory {
public:
    watched_memory(std::size_t count, std::function<void()> then)
        : bytes_(static_cast<std::byte*>(
                     ::mmap(nullptr, count, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
                 count),
          then_(std::move(then)) {
        the_one = this;
        struct sigaction action {};
        action.sa_sigaction = &on_access;
        action.sa_flags = SA_SIGINFO;
        ::sigaction(SIGSEGV, &action, &before_);
    }
    ~watched_memory() {
        ::sigaction(SIGSEGV, &before_, nullptr);
        ::munmap(bytes_.data(), bytes_.size());
    }
    watched_memory(const watched_memory&) = delete;
    const_bytes bytes() const { return bytes_; }

private:
    static void on_access(int, siginfo_t* info, void*) {
        const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(info->si_addr) -
                                                     the_one->bytes_.data());
        if (offset >= the_one->bytes_.size()) {  // A fault of another kind: it comes again.
            ::sigaction(SIGSEGV, &the_one->before_, nullptr);
            return;
        }
        ::mprotect(the_one->bytes_.data() + offset / shm_page_bytes * shm_page_bytes,
                   shm_page_bytes, PROT_READ);
        the_one->then_();
    }

    static inline watched_memory* the_one = nullptr;
    mutable_bytes bytes_;
    std::function<void()> then_;
    struct sigaction before_ {};
};

TEST_F(shm_pieces, no_call_writes_more_than_half_a_mib_of_a_message_whose_reader_keeps_pace) {
    constexpr std::size_t at_once = 32 * limits::shm_piece_bytes;
    // The peer has read each piece before the next is written.
    const watched_memory large(8 * at_once, [&] { peer.take_all(); });
    const const_bytes all = large.bytes();
    ASSERT_EQ(here.end().post_send(here.from, 1, gather(&all, 1), done), posted::pending);
    std::size_t calls = 1;
    for (; done.runs == 0; ++calls)
        here.progress();
    EXPECT_GE(calls, all.size() / at_once);
}

TEST_F(shm_pieces, bytes_arrive_as_they_were_though_their_region_was_closed_halfway) {
    constexpr std::size_t each = limits::rma_piece_bytes;  // With its header more than a ring.
    region source = here.end().open_region(bytes, access::read).value();
    for (const std::size_t from : {std::size_t{0}, std::size_t{1000}}) {
        const rma_request request{source.key(), from, each};
        peer.write(frame_kind::get, sizeof request, as_bytes_of(request));
    }
    hear_from(peer);
    let_go_on();
    EXPECT_EQ(lent(), 2u) << "one half sent, one that waits";
    source = region();
    reuse_memory();
    read(2);
    expect_sent(frames[0], rma_data_prefix_bytes, 0, each);
    expect_sent(frames[1], rma_data_prefix_bytes, 1000, each);
    EXPECT_EQ(lent(), 0u);
    EXPECT_TRUE(here.losses.empty());
}

TEST_F(shm_pieces, bytes_of_a_put_that_is_canceled_halfway_arrive_as_they_were) {
    remote_key key;
    key.region = 1;
    key.incarnation = peer.proper().incarnation;
    key.bytes = message_bytes;
    key.rights = access::read_write;
    const const_bytes from(bytes);
    ASSERT_EQ(here.end().post_put(here.from, gather(&from, 1), key, 0, done), posted::pending);
    let_go_on();
    ASSERT_TRUE(peer.has_record());
    here.end().cancel(done);
    reuse_memory();
    read(1);
    expect_sent(frames[0], rma_request_bytes, 0, limits::rma_piece_bytes);
    let_go_on();
    EXPECT_FALSE(peer.has_record()) << "of the rest nothing is sent";
    EXPECT_EQ(done.runs, 0);
    std::array<std::byte, rma_status_bytes> ok;
    write_status(ok.data(), {});
    peer.write(frame_kind::rma_done, ok.size(), ok, frames[0].header.tag);
    move_until({&here}, [&] { return done.runs > 0; });
    EXPECT_TRUE(done.ended_with(errc::canceled));
    EXPECT_EQ(lent(), 0u);
}

TEST_F(shm_pieces, message_that_is_canceled_halfway_keeps_its_memory_until_all_has_left) {
    recorded second, third;
    ASSERT_EQ(send(1, done), posted::pending);
    ASSERT_TRUE(peer.has_record());
    ASSERT_EQ(send(2, second), posted::pending);
    ASSERT_EQ(send(3, third), posted::pending);
    here.end().cancel(done);
    here.end().cancel(second);  // Has not begun.
    let_go_on();
    EXPECT_TRUE(second.ended_with(errc::canceled));
    EXPECT_EQ(done.runs, 0) << "its memory is still read";
    read(2);
    EXPECT_TRUE(done.ended_with(errc::ok));
    EXPECT_TRUE(third.ended_with(errc::ok));
    EXPECT_EQ(frames[1].header.tag, 3u);
    for (const frame& one : frames)
        expect_sent(one, 0, 0, message_bytes);
}

TEST_F(shm_pieces, nothing_is_read_after_the_end_of_the_connection) {
    ASSERT_EQ(send(1, done), posted::pending);
    here.end().close(here.from);
    move_until({&here}, [&] { return done.runs > 0; });
    EXPECT_TRUE(done.ended_with(errc::closed));
    reuse_memory();
    let_go_on();
    read_some();
    ASSERT_EQ(frames.size(), 1u);
    EXPECT_LT(frames[0].bytes.size(), message_bytes);
    expect_sent(frames[0], 0, 0, frames[0].bytes.size());
    peer.wait_until_dropped();
}

TEST_F(shm_pieces, half_a_message_is_never_delivered) {
    std::optional<shm_raw_peer> other(std::in_place, here.end().address());
    greet(*other, here);
    hear_from(*other);
    const std::size_t before = here.tags.size();
    std::vector<std::byte> into(100'000);
    recorded receive;
    ASSERT_EQ(here.end().post_receive(here.from, 5, into, receive), posted::pending);
    const const_bytes all(bytes);
    const auto send_some = [&](frame_kind kind) {
        other->write(kind, 100'000, all.first(limits::shm_prefix_bytes), 5);
        for (int i = 0; i < 3; ++i)
            other->write(shm_piece_kind, 10'000, all.first(10'000));
    };
    send_some(frame_kind::expected);
    let_go_on();
    EXPECT_EQ(receive.runs, 0);
    other.reset();
    move_until({&here}, [&] { return receive.runs > 0; });
    EXPECT_TRUE(receive.ended_with(errc::disconnected));
    move_until({&here}, [&] { return !here.losses.empty(); });
    EXPECT_EQ(here.tags.size(), before);
}

}  // namespace
}  // namespace amalgam::detail
