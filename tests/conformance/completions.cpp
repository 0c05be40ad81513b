#include <array>
#include <memory>
#include <vector>

#include <amalgam/core/random.hpp>

#include "conformance/transport_suite.hpp"

namespace amalgam::conformance {
namespace {

TEST_P(transport_suite, open_operations_counts_what_is_pending) {
    connection over = connected_pair();
    EXPECT_EQ(over.a.end().open_operations(), 0u);
    std::vector<operation*> ops;
    for (std::uint64_t i = 0; i < 10; ++i) {
        ops.push_back(&start(over.a, request::receive(over.b_at_a, i, zeroed(8))));
        EXPECT_EQ(over.a.end().open_operations(), i + 1);
    }
    for (std::uint64_t i = 0; i < 10; ++i) {
        start(over.b, request::send_expected(over.a_at_b, i, patterned(8, i)));
        finish(*ops[i]);
        EXPECT_EQ(over.a.end().open_operations(), 9 - i);
    }
    EXPECT_EQ(over.b.end().open_operations(), 0u);
}

TEST_P(transport_suite, progress_runs_no_more_than_its_budget_and_says_how_many) {
    connection over = connected_pair();
    std::uint64_t count = 200;
    std::uint64_t sent = 0;
    std::uint64_t before = over.b.callbacks;
    auto pump = [&] {
        while (sent < count &&
               !over.a.try_post(request::send(over.b_at_a, sent, patterned(16, 1))).refused())
            ++sent;
        over.a.progress();
    };
    pump();
    for (std::size_t round = 0; over.b.callbacks - before < count; ++round) {
        std::size_t budget = round % 4;
        std::uint64_t came = over.b.callbacks;
        std::size_t ran = over.b.progress(budget);
        ASSERT_LE(ran, budget);
        ASSERT_EQ(over.b.callbacks - came, ran);
        if (ran == 0) pump();
    }
    EXPECT_EQ(over.b.arrived.size(), count);
}

TEST_P(transport_suite, completions_run_within_the_budget) {
    connection over = connected_pair();
    constexpr std::uint64_t count = 100;
    std::vector<operation*> ops;
    for (std::uint64_t i = 0; i < count; ++i)
        ops.push_back(&start(over.a, request::receive(over.b_at_a, 1, zeroed(8))));
    over.b.end().close(over.a_at_b);
    until("all of them", [&] {
        // node::progress checks that at most one runs each time.
        for (int i = 0; i < 50; ++i)
            over.a.progress(1);
        return over.a.open_operations() == 0;
    });
    for (operation* op : ops)
        EXPECT_EQ(op->code(), errc::disconnected);
}

TEST_P(transport_suite, failure_is_never_done_at_once) {
    connection over = connected_pair();
    remote_key forged{1, 2, over.b.end().incarnation(), 64, access::read_write, {}};
    for (const request& ask : {request::put(over.b_at_a, {patterned(64, 1)}, forged, 0),
                               request::get(over.b_at_a, {zeroed(64)}, forged, 0)}) {
        operation& op = start(over.a, ask);
        EXPECT_EQ(op.how(), posted::pending);
        finish(op);
        EXPECT_EQ(op.code(), errc::denied);
    }
}

/// A ring of receives that repost themselves, as servers do.
TEST_P(transport_suite, completion_may_post_the_next_operation) {
    connection over = connected_pair();
    std::uint64_t rounds = is_brief() ? 300 : 3000;
    std::uint64_t came = 0;
    mutable_bytes into = zeroed(100);
    std::function<void(operation&)> post_next = [&](operation& last) {
        EXPECT_EQ(last.code(), errc::ok);
        EXPECT_TRUE(is_pattern(into, came));
        if (++came == rounds) return;
        operation& next = over.b.try_post(request::receive(over.a_at_b, 1, into));
        EXPECT_EQ(next.how(), posted::pending) << "a receive that waits is pending";
        next.then = post_next;
    };
    start(over.b, request::receive(over.a_at_b, 1, into)).then = post_next;
    for (std::uint64_t i = 0; i < rounds; ++i) {
        start(over.a, request::send_expected(over.b_at_a, 1, patterned(100, i)));
        until("the message", [&] { return came == i + 1; });
    }
}

/// Counts its runs externally, and is destroyed by the first.
struct self_destroying : completion {
    self_destroying(int& runs_, int& alive_)
        : completion([](completion& self, status what, std::size_t) noexcept {
              auto* me = static_cast<self_destroying*>(&self);
              EXPECT_TRUE(what.ok() || what == errc::closed || what == errc::canceled);
              ++me->runs;
              delete me;
          }),
          runs(runs_),
          alive(alive_) {
        ++alive;
    }
    ~self_destroying() { --alive; }

    int& runs;
    int& alive;
};

TEST_P(transport_suite, completion_may_destroy_itself) {
    connection over = connected_pair();
    int runs = 0;
    int alive = 0;
    mutable_bytes into = zeroed(16);
    // Not through a node, which would keep its operations.
    for (int i = 0; i < 300; ++i) {
        auto own = std::make_unique<self_destroying>(runs, alive);
        if (over.b.end().post_receive(over.a_at_b, i % 3, into, *own) == posted::pending)
            (void)own.release();
    }
    EXPECT_EQ(alive, 300);
    for (int i = 0; i < 300; ++i)
        start(over.a, request::send_expected(over.b_at_a, i % 3, patterned(16, 1)));
    until("all of them", [&] { return runs == 300; });
    EXPECT_EQ(alive, 0);
    EXPECT_EQ(over.b.end().open_operations(), 0u);
}

TEST_P(transport_suite, destroying_completions_survive_cancel_and_close) {
    connection over = connected_pair();
    int runs = 0;
    int alive = 0;
    mutable_bytes into = zeroed(16);
    std::vector<self_destroying*> raw;
    for (int i = 0; i < 100; ++i) {
        raw.push_back(new self_destroying(runs, alive));
        ASSERT_EQ(over.b.end().post_receive(over.a_at_b, 1, into, *raw.back()), posted::pending);
    }
    for (int i = 0; i < 100; i += 2)
        over.b.end().cancel(*raw[i]);
    over.b.close(over.a_at_b);
    until("all of them", [&] { return runs == 100; });
    EXPECT_EQ(alive, 0);
}

TEST_P(transport_suite, what_completions_post_at_the_ports_end_comes_back_full) {
    connection over = connected_pair();
    mutable_bytes into = zeroed(8);
    int tried = 0;
    for (int i = 0; i < 5; ++i) {
        start(over.a, request::receive(over.b_at_a, 1, into)).then = [&](operation& ended) {
            EXPECT_EQ(ended.code(), errc::closed);
            for (request again :
                 {request::receive(over.b_at_a, 1, into), request::send(over.b_at_a, 1, into)}) {
                EXPECT_EQ(over.a.try_post(again).how(), posted::full);
                ++tried;
            }
        };
    }
    over.a.shut();
    EXPECT_EQ(tried, 10);
}

/// Random operations of every kind between three ports, some canceled, some connections closed and
/// reopened; the nodes check the invariants.
class chaos {
public:
    chaos(std::uint64_t seed, mutable_bytes memory) : dice_(seed), memory_(memory) {}

    mutable_bytes some_bytes() {
        constexpr std::size_t most[] = {1, 64, 64, 5000, 300000};
        std::size_t bytes = dice_.below(most[dice_.below(5)]);
        return memory_.subspan(dice_.below(memory_.size() - bytes), bytes);
    }

    request some_request(peer_id peer, const remote_key& key) {
        std::uint64_t tag = dice_.below(4);
        std::uint64_t offset = dice_.below(1000);
        switch (dice_.below(5)) {
            case 0:
                return request::send(peer, tag, some_bytes());
            case 1:
                return request::send_expected(peer, tag, some_bytes());
            case 2:
                return request::receive(peer, tag, some_bytes());
            case 3:
                return request::put(peer, {some_bytes(), some_bytes()}, key, offset);
            default:
                return request::get(peer, {some_bytes(), some_bytes()}, key, offset);
        }
    }

    seeded_random& dice() { return dice_; }

private:
    seeded_random dice_;
    mutable_bytes memory_;
};

TEST_P(transport_suite, any_mix_of_operations_cancels_and_closes_keeps_the_promises) {
    constexpr std::uint64_t last_tag = 100;
    int steps = is_brief() ? 1500 : 8000;
    for (std::uint64_t seed = 1; seed <= (is_brief() ? 3u : 10u); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        chaos source(seed, zeroed(2000000));
        std::vector<node*> ends{&open(), &open(), &open()};
        std::vector<region> regions;
        std::array<bool, 9> heard{};
        for (node* each : ends) {
            each->on_arrival = [&](message& got) {
                if (got.tag() >= last_tag) heard[got.tag() - last_tag] = true;
                (void)got.take();
            };
            regions.push_back(each->end().open_region(zeroed(500000), access::read_write).value());
        }
        std::vector<std::pair<node*, operation*>> ops;
        for (int i = 0; i < steps; ++i) {
            auto& dice = source.dice();
            std::size_t from = dice.below(3);
            std::size_t to = (from + 1 + dice.below(2)) % 3;
            node& at = *ends[from];
            peer_id peer = at.end().lookup(ends[to]->end().address()).value();
            std::uint64_t what = dice.below(1000);
            if (what < 500) {
                ops.emplace_back(&at, &at.try_post(source.some_request(peer, regions[to].key())));
            } else if (what < 650 && !ops.empty()) {
                auto [node_of, op] = ops[dice.below(ops.size())];
                if (op->pending()) node_of->cancel(*op);
            } else if (what < 653) {
                at.close(peer);
            } else {
                ends[dice.below(3)]->progress(dice.below(8));
            }
        }
        regions.clear();
        std::array<peer_id, 9> asked{};
        until("a last word of each to each", [&] {
            bool all = true;
            for (std::size_t pair = 0; pair < 9; ++pair) {
                node& from = *ends[pair / 3];
                if (pair / 3 == pair % 3 || heard[pair]) continue;
                all = false;
                if (asked[pair] && !from.has_lost(asked[pair])) continue;
                const peer_id to = from.end().lookup(ends[pair % 3]->end().address()).value();
                const request word = request::send(to, last_tag + pair, zeroed(1));
                asked[pair] = from.try_post(word).how() == posted::full ? peer_id() : to;
            }
            return all;
        });
        for (node* each : ends)
            each->shut();
    }
}

}  // namespace
}  // namespace amalgam::conformance
