// Connections over a carrier played by the test, which sees every packet sent and fabricates those
// received.
#include "fabric/packets/connection.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/fabric/packets.hpp>

#include "emulated.hpp"
#include "fabric/frames/rma_frames.hpp"
#include "fabric/frames/wire_header.hpp"
#include "fabric/limits.hpp"
#include "fabric/memory/truncated_file.hpp"
#include "fabric/one_sided/frames.hpp"
#include "fabric/packets/header.hpp"
#include "fabric/peers/matching.hpp"
#include "fabric/transports/tcp/test_port.hpp"

namespace amalgam::detail {
namespace {

constexpr std::size_t packet_bytes = 4096;
constexpr std::size_t lent_bytes = 10'000;  // More than is copied, and more than a packet holds.

using bytes_of = std::vector<std::byte>;

class recording_carrier final : public packet_carrier {
public:
    struct link final : packet_link {
        posted send(packet& one) noexcept override {
            used.insert(&one);
            EXPECT_EQ(held.count(&one), 0u) << "a packet that is lent is sent again";
            if (answer == posted::full) return answer;
            sent.emplace_back(one.data, one.data + one.bytes);
            if (answer == posted::pending) held.insert(&one);
            return answer;
        }
        void close() noexcept override { closed = true; }

        posted answer = posted::done;
        std::vector<bytes_of> sent;
        std::set<packet*> held, used;
        bool closed = false;
    };

    void start(packet_events& to) noexcept override { events = &to; }
    std::string address() const override { return "scripted://here"; }
    std::string explain() const override { return "a test asked for it"; }
    result<std::string> canonical(std::string_view address) const override {
        return std::string(address);
    }
    result<packet_link*> connect(std::string_view) override {
        links.push_back(std::make_unique<link>());
        return static_cast<packet_link*>(links.back().get());
    }
    void release(packet_link& one) noexcept override {
        give_back(static_cast<link&>(one));
        ++released;
    }
    std::size_t progress(std::size_t) noexcept override {
        std::size_t count = 0;
        for (; !coming.empty(); coming.pop_front(), ++count) {
            auto& [to, bytes] = coming.front();
            if (!to->closed) events->received(*to, bytes);
        }
        for (link* one : std::exchange(have_room, {}))
            events->room(*one);
        return count;
    }
    int wait_handle() const noexcept override { return handle_.get(); }
    bool arm() noexcept override { return coming.empty(); }

    void give_back(link& one) {
        for (packet* each : std::exchange(one.held, {}))
            events->returned(*each);
    }

    packet_events* events = nullptr;
    std::vector<std::unique_ptr<link>> links;
    std::deque<std::pair<link*, bytes_of>> coming;
    std::vector<link*> have_room;
    std::size_t released = 0;

private:
    unique_fd handle_{::eventfd(0, EFD_CLOEXEC)};
};

bytes_of packet_of(packet_kind kind, std::uint16_t credit, const bytes_of& rest = {}) {
    bytes_of made(packet_header::wire_bytes);
    packet_header{kind, credit}.encode(made.data());
    made.insert(made.end(), rest.begin(), rest.end());
    return made;
}

bytes_of hello() {
    bytes_of rest(packet_hello::wire_bytes);
    packet_hello one;
    one.packet_bytes = packet_bytes;
    one.incarnation = 77;
    one.encode(rest.data());
    return packet_of(packet_kind::hello, 0, rest);
}

bytes_of frame(frame_kind kind, std::uint64_t tag, const bytes_of& payload) {
    frame_header header{.kind = kind, .tag = tag};
    header.bytes = static_cast<std::uint32_t>(payload.size());
    const wire_header wire = to_wire(header);
    bytes_of made(wire.begin(), wire.end());
    made.insert(made.end(), payload.begin(), payload.end());
    return made;
}

bytes_of message_of(std::uint64_t tag, std::uint16_t credit = 0) {
    return packet_of(packet_kind::frames, credit, frame(frame_kind::unexpected, tag, bytes_of(8)));
}

class packet_connection_test : public testing::Test {
protected:
    explicit packet_connection_test(const port_options& options = {})
        : here_(make_packet_port(std::unique_ptr<packet_carrier>(carrier_),
                                 {.transport = "scripted", .packet_bytes = packet_bytes},
                                 options)) {
        there_ = here_.look_up("scripted://there");
        link_ = carrier_->links.back().get();
        here_.end->progress();
    }
    /// After every test everything is returned: operations, messages, packets and links.
    ~packet_connection_test() override {
        link_->answer = posted::done;
        here_.end->close(there_);
        settle();
        EXPECT_EQ(here_.end->open_operations(), 0u);
        EXPECT_EQ(here_.end->usage().queued_bytes, 0u);
        EXPECT_EQ(carrier_->released, 1u);
        EXPECT_TRUE(link_->held.empty());
    }
    void come(bytes_of packet) { carrier_->coming.emplace_back(link_, std::move(packet)); }
    void settle(int rounds = 8) {
        for (int i = 0; i < rounds; ++i)
            here_.end->progress();
    }
    void meet() {
        come(hello());
        settle();
        ASSERT_TRUE(here_.lost.empty());
    }
    void expect_dropped() {
        settle();
        ASSERT_EQ(here_.lost.size(), 1u);
        EXPECT_EQ(here_.lost.front().second.code, errc::disconnected);
        EXPECT_TRUE(link_->closed);
    }

    recording_carrier* carrier_ = new recording_carrier;
    tcp_test_port here_;
    peer_id there_;
    recording_carrier::link* link_ = nullptr;
};

TEST_F(packet_connection_test, frames_before_the_hello_end_the_connection) {
    come(message_of(1));
    expect_dropped();
    EXPECT_TRUE(here_.arrived.empty());
}

TEST_F(packet_connection_test, credit_before_the_hello_ends_the_connection) {
    come(packet_of(packet_kind::credit, 0));
    expect_dropped();
}

TEST_F(packet_connection_test, a_second_hello_ends_the_connection) {
    meet();
    come(hello());
    expect_dropped();
}

TEST_F(packet_connection_test, more_credit_than_packets_are_out_ends_the_connection) {
    meet();
    ASSERT_TRUE(here_.send(there_, 1, "one packet"));
    come(packet_of(packet_kind::credit, 2));
    expect_dropped();
}

TEST_F(packet_connection_test, more_credit_than_packets_are_out_counts_with_frames_too) {
    meet();
    come(message_of(1, 1));
    expect_dropped();
    EXPECT_TRUE(here_.arrived.empty());
}

TEST_F(packet_connection_test, credit_for_what_is_out_is_taken) {
    meet();
    ASSERT_TRUE(here_.send(there_, 1, "one packet"));
    come(message_of(5, 1));
    settle();
    EXPECT_EQ(here_.arrived.size(), 1u);
    EXPECT_TRUE(here_.lost.empty());
}

// ---- keys of a library, where ours has none

TEST_F(packet_connection_test, question_for_a_key_is_answered_with_none) {
    meet();
    come(packet_of(packet_kind::frames, 0,
                   frame(key_question_kind, 9, bytes_of(key_question_bytes))));
    settle();
    const std::byte* const answer = link_->sent.back().data() + packet_header::wire_bytes;
    const frame_header header = from_wire(answer);
    EXPECT_EQ(header.kind, key_answer_kind);
    EXPECT_EQ(header.tag, 9u);
    ASSERT_EQ(header.bytes, key_answer::wire_bytes);
    EXPECT_EQ(key_answer::decode(answer + sizeof(wire_header)).count, 0u);
    EXPECT_TRUE(here_.lost.empty());
}

TEST_F(packet_connection_test, question_for_a_key_that_is_too_short_ends_the_connection) {
    meet();
    come(packet_of(packet_kind::frames, 0,
                   frame(key_question_kind, 9, bytes_of(key_question_bytes - 1))));
    expect_dropped();
}

TEST_F(packet_connection_test, question_for_a_key_by_too_long_a_name_ends_the_connection) {
    meet();
    come(packet_of(packet_kind::frames, 0, frame(key_question_kind, 9, bytes_of(169))));
    expect_dropped();
}

TEST_F(packet_connection_test, answer_about_a_key_that_was_not_asked_for_ends_the_connection) {
    meet();
    come(packet_of(packet_kind::frames, 0,
                   frame(key_answer_kind, 9, bytes_of(key_answer::wire_bytes))));
    expect_dropped();
}

TEST_F(packet_connection_test, a_credit_packet_with_something_in_it_ends_the_connection) {
    meet();
    come(packet_of(packet_kind::credit, 0, bytes_of(1)));
    expect_dropped();
}

TEST_F(packet_connection_test, a_packet_shorter_than_its_header_or_of_no_kind_ends_the_connection) {
    meet();
    come(bytes_of(packet_header::wire_bytes - 1));
    expect_dropped();
}

TEST_F(packet_connection_test, a_hello_of_other_packets_is_a_mismatch) {
    bytes_of other = hello();
    store_le(other.data() + packet_header::wire_bytes + 12, std::uint32_t{packet_bytes * 2});
    come(other);
    settle();
    ASSERT_EQ(here_.lost.size(), 1u);
    EXPECT_EQ(here_.lost.front().second.code, errc::mismatch);
}

TEST_F(packet_connection_test, a_window_of_packets_leaves_without_credit_and_no_more) {
    meet();
    const std::size_t before = link_->sent.size();
    for (unsigned i = 0; i < limits::packet_window + 5; ++i)
        (void)here_.send(there_, i, "each in a packet of its own");
    settle();
    EXPECT_EQ(link_->sent.size(), before + limits::packet_window);
    come(packet_of(packet_kind::credit, limits::packet_window));
    settle();
    EXPECT_GT(link_->sent.size(), before + limits::packet_window);
}

TEST_F(packet_connection_test, a_mute_peer_is_sent_a_hello_and_nothing_else) {
    tcp_test_port::operation op;
    EXPECT_EQ(here_.post(there_, 1, "nobody has answered", op), posted::pending);
    settle(1000);
    ASSERT_EQ(link_->sent.size(), 1u);
    EXPECT_EQ(packet_header::decode(link_->sent[0].data()).kind, packet_kind::hello);
    EXPECT_FALSE(op.over);
    here_.end->close(there_);
    settle();
    EXPECT_TRUE(op.over);
    EXPECT_EQ(op.code, errc::closed);
}

TEST_F(packet_connection_test, credit_is_sent_once_half_a_window_is_used_up) {
    meet();
    const std::size_t before = link_->sent.size();
    for (unsigned i = 0; i < limits::packet_window / 2; ++i)
        come(message_of(i));
    settle();
    ASSERT_EQ(link_->sent.size(), before + 1);
    const packet_header told = packet_header::decode(link_->sent.back().data());
    EXPECT_EQ(told.kind, packet_kind::credit);
    EXPECT_EQ(told.credit, limits::packet_window / 2);
}

TEST_F(packet_connection_test, credit_that_finds_no_room_waits_and_costs_no_packet) {
    meet();
    const std::size_t sent = link_->sent.size();
    for (unsigned i = 0; i < limits::packet_window / 2; ++i)
        come(message_of(i));
    for (int i = 0; i < 100; ++i) {
        link_->answer = posted::full;
        carrier_->have_room.push_back(link_);
        settle();
    }
    EXPECT_LE(link_->used.size(), 2u) << "refused packets go back";
    EXPECT_EQ(link_->sent.size(), sent);
    link_->answer = posted::done;
    carrier_->have_room.push_back(link_);
    settle();
    ASSERT_EQ(link_->sent.size(), sent + 1);
    EXPECT_EQ(packet_header::decode(link_->sent.back().data()).credit, limits::packet_window / 2);
}

TEST_F(packet_connection_test, no_packet_is_used_twice_after_credit_was_sent) {
    meet();
    for (unsigned i = 0; i < limits::packet_window / 2; ++i)
        come(message_of(i));
    settle();
    link_->answer = posted::pending;  // The link checks the packets it holds.
    for (int i = 0; i < 10; ++i)
        ASSERT_TRUE(here_.send(there_, 1, "lent to the carrier"));
    EXPECT_EQ(link_->held.size(), 10u);
    carrier_->give_back(*link_);
}

TEST_F(packet_connection_test, memory_that_cannot_be_accessed_is_refused_when_it_is_shown) {
    if (is_emulated()) GTEST_SKIP() << qemu_cannot_look_first;
    truncated_file file(8 * 4096, PROT_READ);
    const auto shown = [&](mutable_bytes bytes, access rights) {
        const auto opened = here_.end->open_region(bytes, rights);
        return opened ? "shown" : opened.sentence();
    };
    EXPECT_EQ(shown(file.bytes(), access::read), "shown");
    const std::string told = shown(file.bytes(), access::read_write);
    EXPECT_NE(told.find(" cannot be written by this process"), std::string::npos) << told;
    file.truncate(4096);
    EXPECT_NE(shown(file.bytes(), access::read).find(" cannot be read by this process"),
              std::string::npos);
    EXPECT_EQ(shown(file.bytes().first(4096), access::read), "shown");
    bytes_of memory(3 * 4096);
    EXPECT_EQ(shown(memory, access::read_write), "shown");
    EXPECT_EQ(shown(mutable_bytes(memory).first(0), access::read_write), "shown");
}

/// A packet with messages of these tags.
bytes_of packet_with(std::uint64_t first, std::uint64_t count) {
    bytes_of frames;
    for (std::uint64_t tag = first; tag < first + count; ++tag) {
        const bytes_of one = frame(frame_kind::unexpected, tag, bytes_of(8));
        frames.insert(frames.end(), one.begin(), one.end());
    }
    return packet_of(packet_kind::frames, 0, frames);
}

TEST_F(packet_connection_test, frames_past_the_budget_wait_for_the_next_round) {
    meet();
    come(packet_with(0, 5));
    for (std::size_t count = 1; count <= 5; ++count) {
        EXPECT_EQ(here_.end->progress(1), 1u);
        ASSERT_EQ(here_.arrived.size(), count);
        EXPECT_EQ(here_.arrived.back().tag, count - 1);
        EXPECT_TRUE(count == 5 || !here_.end->prepare_to_sleep()) << count;
    }
    settle();
    EXPECT_TRUE(here_.end->prepare_to_sleep());
}

/// One unread message is already over the limit.
class paused_packet_connection_test : public packet_connection_test {
protected:
    paused_packet_connection_test() : packet_connection_test({.max_queued_bytes = 1}) {}
};

TEST_F(paused_packet_connection_test, packets_wait_in_order_and_give_credit_when_they_are_read) {
    constexpr unsigned window = limits::packet_window;
    meet();
    const std::size_t before = link_->sent.size();
    here_.end->set_sink(nullptr);
    for (unsigned i = 0; i < window; ++i)
        come(packet_with(3 * i, 3));
    settle(100);
    EXPECT_EQ(link_->sent.size(), before) << "no credit for what nobody has read";
    EXPECT_LT(here_.end->usage().queued_bytes, 2 * sizeof(early_message)) << "one message only";
    EXPECT_TRUE(here_.end->prepare_to_sleep());

    here_.end->set_sink(&here_);
    settle(1000);
    ASSERT_EQ(here_.arrived.size(), 3 * window);
    for (unsigned i = 0; i < 3 * window; ++i)
        ASSERT_EQ(here_.arrived[i].tag, i);
    unsigned credit = 0;
    for (std::size_t i = before; i < link_->sent.size(); ++i)
        credit += packet_header::decode(link_->sent[i].data()).credit;
    EXPECT_GT(credit, window / 2);
    EXPECT_LE(credit, window);
    EXPECT_TRUE(here_.end->prepare_to_sleep());
}

TEST_F(paused_packet_connection_test, peer_that_sends_more_than_a_window_is_dropped) {
    meet();
    here_.end->set_sink(nullptr);
    for (unsigned i = 0; i < limits::packet_window; ++i)
        come(packet_with(i, 2));
    settle(100);
    EXPECT_FALSE(link_->closed);
    come(packet_with(0, 2));
    settle(100);
    EXPECT_TRUE(link_->closed);
    here_.end->set_sink(&here_);
    settle(1000);
    ASSERT_EQ(here_.lost.size(), 1u);
    EXPECT_EQ(here_.lost.front().second.code, errc::disconnected);
}

/// Requests a whole region, as the peer would.
bytes_of get_request(std::uint64_t tag, const remote_key& key) {
    bytes_of raw(rma_request_bytes);
    write_request(raw.data(), {key, 0, key.bytes});
    return frame(frame_kind::get, tag, raw);
}

TEST_F(packet_connection_test, who_comes_behind_the_last_that_was_taken_back_is_told) {
    meet();
    bytes_of memory(2 * lent_bytes);
    const mutable_bytes all(memory);
    region stays = here_.end->open_region(all.first(lent_bytes), access::read).value();
    auto goes = here_.end->open_region(all.last(lent_bytes), access::read);
    bytes_of asked;
    for (const auto& [tag, key] : {std::pair<std::uint64_t, remote_key>{1, stays.key()},
                                   {2, stays.key()},
                                   {3, goes->key()}}) {
        const bytes_of one = get_request(tag, key);
        asked.insert(asked.end(), one.begin(), one.end());
    }
    come(packet_of(packet_kind::frames, 0, asked));
    const std::size_t before = link_->sent.size();
    // Until all answers have been sent; their senders are told in the round after that.
    while (link_->sent.size() < before + 8)
        here_.end->progress(3);
    { const region ended = std::move(goes).value(); }
    tcp_test_port::operation op;
    EXPECT_EQ(here_.post(there_, 3, std::string(lent_bytes, 'x'), op), posted::pending);
    here_.end->progress(1);  // The first answer is reported, then the message is sent.
    settle();
    EXPECT_TRUE(op.over);
    EXPECT_EQ(op.code, errc::ok);
}

}  // namespace
}  // namespace amalgam::detail
