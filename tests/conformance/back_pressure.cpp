#include <vector>

#include <amalgam/core/random.hpp>

#include "conformance/transport_suite.hpp"

namespace amalgam::conformance {
namespace {

/// Posts a numbered stream from one node to a peer as fast as it is accepted.
class stream {
public:
    stream(node& from, peer_id to, std::uint64_t count, std::vector<const_bytes> messages)
        : from_(from), to_(to), count_(count), messages_(std::move(messages)) {}

    /// Posts until the port is full, or all are posted; returns whether it saw `full`.
    bool pump(std::uint64_t most = ~0ull) {
        for (std::uint64_t i = 0; i < most && !all_posted(); ++i) {
            if (last_ != nullptr && last_->refused()) {
                if (last_->post() == posted::full) return true;
            } else {
                last_ = &from_.try_post(
                    request::send(to_, posted_, messages_[posted_ % messages_.size()]));
            }
            if (last_->refused()) return true;
            ++posted_;
        }
        return false;
    }

    bool all_posted() const noexcept { return posted_ == count_; }
    std::uint64_t posted_count() const noexcept { return posted_; }

private:
    node& from_;
    peer_id to_;
    std::uint64_t count_;
    std::uint64_t posted_ = 0;
    std::vector<const_bytes> messages_;
    operation* last_ = nullptr;
};

/// Expects the messages of a stream: each once, in order, intact.
class stream_check {
public:
    stream_check(node& at, const std::vector<const_bytes>& messages) {
        at.on_arrival = [this, &messages](message& got) {
            EXPECT_EQ(got.tag(), came_) << "lost, doubled or out of order";
            const_bytes want = messages[got.tag() % messages.size()];
            EXPECT_TRUE(are_same(got.bytes(), want))
                << "message " << got.tag() << " of " << got.bytes().size() << " bytes";
            came_ = got.tag() + 1;
        };
    }
    std::uint64_t came() const noexcept { return came_; }

private:
    std::uint64_t came_ = 0;
};

TEST_P(transport_suite, short_messages_resume_after_full_none_lost_none_doubled) {
    connection over = connected_pair();
    std::uint64_t count = is_brief() ? 20000 : 200000;
    std::vector<const_bytes> messages{patterned(8, 1), patterned(40, 2), patterned(0, 3)};
    stream sent(over.a, over.b_at_a, count, messages);
    stream_check check(over.b, messages);
    // Only the sender makes progress: it must hit its limit, or take everything.
    for (int rounds = 0; rounds < 50 && !sent.all_posted(); ++rounds) {
        sent.pump();
        over.a.progress();
    }
    EXPECT_EQ(check.came(), 0u);
    until("the whole stream", [&] {
        sent.pump();
        return check.came() == count;
    });
    until("every send", [&] { return over.a.open_operations() == 0; });
}

TEST_P(transport_suite, long_messages_resume_after_full_none_lost_none_doubled) {
    connection over = connected_pair();
    std::uint64_t count = is_brief() ? 60 : 300;
    std::vector<const_bytes> messages{patterned(1 << 20, 1), patterned(3, 2), patterned(70000, 3),
                                      patterned(300000, 4)};
    stream sent(over.a, over.b_at_a, count, messages);
    stream_check check(over.b, messages);
    for (int rounds = 0; rounds < 50; ++rounds) {
        sent.pump();
        over.a.progress();
    }
    until("the whole stream", [&] {
        sent.pump();
        return check.came() == count;
    });
    until("every send", [&] { return over.a.open_operations() == 0; });
}

TEST_P(transport_suite, both_ends_full_at_once_do_not_deadlock) {
    connection over = connected_pair();
    std::uint64_t count = is_brief() ? 400 : 3000;
    std::vector<const_bytes> messages{patterned(30, 1), patterned(20000, 2), patterned(64, 3),
                                      patterned(200000, 4), patterned(1000, 5)};
    stream there(over.a, over.b_at_a, count, messages);
    stream back(over.b, over.a_at_b, count, messages);
    stream_check at_b(over.b, messages);
    stream_check at_a(over.a, messages);
    // Both fill up before either receives anything.
    there.pump();
    back.pump();
    until("both streams", [&] {
        there.pump();
        back.pump();
        return at_a.came() == count && at_b.came() == count;
    });
    until("every send",
          [&] { return over.a.open_operations() == 0 && over.b.open_operations() == 0; });
}

TEST_P(transport_suite, large_messages_both_ways_at_once_do_not_deadlock) {
    connection over = connected_pair();
    std::size_t bytes = std::size_t{is_brief() ? 4u : 24u} << 20;
    std::vector<const_bytes> messages{patterned(bytes, 1)};
    stream there(over.a, over.b_at_a, 4, messages);
    stream back(over.b, over.a_at_b, 4, messages);
    stream_check at_b(over.b, messages);
    stream_check at_a(over.a, messages);
    until("both streams", [&] {
        there.pump();
        back.pump();
        return at_a.came() == 4 && at_b.came() == 4;
    });
    until("every send",
          [&] { return over.a.open_operations() == 0 && over.b.open_operations() == 0; });
}

TEST_P(transport_suite, peer_that_takes_nothing_off_holds_up_no_other) {
    node& a = open();
    connection stuck = connect(a, open());
    connection lively = connect(a, open());
    std::vector<const_bytes> messages{patterned(1000, 1)};
    stream to_stuck(a, stuck.b_at_a, 100000, messages);
    for (int rounds = 0; rounds < 20; ++rounds) {
        to_stuck.pump(5000);
        a.progress();
    }
    std::uint64_t count = 500;
    stream to_lively(a, lively.b_at_a, count, messages);
    stream_check check(lively.b, messages);
    // Not move(): the stuck node must stay stuck.
    for (std::uint64_t rounds = 0; check.came() < count; ++rounds) {
        ASSERT_LT(rounds, 100'000'000u) << "only " << check.came() << " came";
        to_lively.pump();
        a.progress();
        lively.b.progress();
    }
    stream_check late(stuck.b, messages);
    until("what was stuck", [&] { return late.came() == to_stuck.posted_count(); });
}

TEST_P(transport_suite, flood_of_requests_gets_every_answer) {
    connection over = connected_pair();
    std::uint64_t count = is_brief() ? 5000 : 50000;
    std::vector<const_bytes> messages{patterned(60, 1), patterned(9, 2)};
    stream requests(over.a, over.b_at_a, count, messages);
    stream answers(over.b, over.a_at_b, count, messages);
    std::uint64_t asked = 0;
    stream_check at_a(over.a, messages);
    over.b.on_arrival = [&](message& got) {
        EXPECT_EQ(got.tag(), asked++);
        answers.pump(asked - answers.posted_count());  // A later one sends what is refused.
    };
    until("every answer", [&] {
        requests.pump();
        answers.pump(asked - answers.posted_count());
        return at_a.came() == count;
    });
}

TEST_P(transport_suite, transfers_flood_both_ways_at_once) {
    connection over = connected_pair();
    constexpr std::size_t slots = 64;
    constexpr std::size_t bytes = 40000;
    std::uint64_t rounds = is_brief() ? 5 : 30;
    mutable_bytes of_a = patterned(slots * bytes, 1);
    mutable_bytes of_b = patterned(slots * bytes, 2);
    region at_a = over.a.end().open_region(of_a, access::read_write).value();
    region at_b = over.b.end().open_region(of_b, access::read_write).value();
    mutable_bytes copy_of_a = zeroed(slots * bytes);
    const_bytes fresh = patterned(slots * bytes, 3);
    std::vector<operation*> ops;
    for (std::uint64_t i = 0; i < rounds * slots; ++i) {
        std::size_t offset = i % slots * bytes;
        ops.push_back(&over.a.try_post(
            request::put(over.b_at_a, {fresh.subspan(offset, bytes)}, at_b.key(), offset)));
        ops.push_back(&over.b.try_post(
            request::get(over.a_at_b, {copy_of_a.subspan(offset, bytes)}, at_a.key(), offset)));
    }
    for (operation* op : ops)
        until("room to post", [&] { return !op->refused() || op->post() != posted::full; });
    finish(ops);
    for (operation* op : ops)
        ASSERT_EQ(op->code(), errc::ok);
    EXPECT_TRUE(is_pattern(of_b, 3));
    EXPECT_TRUE(is_pattern(copy_of_a, 1));
}

}  // namespace
}  // namespace amalgam::conformance
