#include <algorithm>
#include <vector>

#include <amalgam/core/random.hpp>

#include "conformance/served.hpp"

namespace amalgam::conformance {
namespace {

/// A process that communicates with this one until killed at random.
struct doomed {
    child_process* process;
    served told;
    peer_id peer;
    std::vector<operation*> ops;
};

class killing_field {
public:
    killing_field(transport_suite& suite, std::uint64_t seed, int count)
        : suite_(suite), dice_(seed), memory_(suite.patterned(most_bytes, 1)) {
        for (int i = 0; i < count; ++i)
            waiting_.push_back(&suite.spawn([&suite](channel& parent) {
                parent.hear();
                serve(suite, parent, suite.GetParam());
            }));
        here_ = &suite.open();
        here_->on_arrival = [](message& got) { (void)got.take(); };
    }

    bool over() const { return waiting_.empty() && alive_.empty(); }

    void step() {
        if (alive_.size() < 3 && !waiting_.empty()) start_one();
        for (int i = 0; i < 40; ++i)
            post_something(alive_[dice_.below(alive_.size())]);
        for (std::uint64_t i = dice_.below(60); i > 0; --i)
            here_->progress(1 + dice_.below(5));
        if (dice_.chance(0.3)) kill_one(dice_.below(alive_.size()));
    }

    node& here() { return *here_; }

private:
    static constexpr std::size_t most_bytes = 2000000;

    void start_one() {
        doomed one{waiting_.back(), {}, {}, {}};
        waiting_.pop_back();
        one.process->line().say("go");
        one.told = served::from_text(suite_.hear(*one.process));
        // Some are killed before they are connected.
        one.peer = dice_.chance(0.7) ? reach(suite_, *here_, one.told.address)
                                     : here_->end().lookup(one.told.address).value();
        alive_.push_back(std::move(one));
    }

    void post_something(doomed& to) {
        constexpr std::size_t most[] = {32, 4000, 100000, most_bytes};
        mutable_bytes bytes = memory_.first(dice_.below(most[dice_.below(4)]));
        const auto kinds = kinds_of(here_->end());
        request ask{kinds[dice_.below(kinds.size())], to.peer, dice_.below(3)};
        ask.key = dice_.chance(0.5) ? to.told.key : to.told.block_key;
        ask.offset = dice_.below(1000);
        if (is_atomic(ask.kind)) {
            ask.offset *= 8;
        } else if (ask.kind == op_kind::receive || ask.kind == op_kind::get) {
            ask.into = {bytes};
        } else {
            ask.from = {bytes};
        }
        operation& op = here_->try_post(ask);
        if (!op.refused()) to.ops.push_back(&op);
    }

    void kill_one(std::size_t which) {
        doomed one = std::move(alive_[which]);
        alive_.erase(alive_.begin() + static_cast<std::ptrdiff_t>(which));
        if (dice_.chance(0.3)) {
            one.process->freeze();
            here_->progress();
        }
        one.process->kill();
        suite_.finish(one.ops);
        suite_.until("the word of the loss", [&] { return here_->has_lost(one.peer); });
        for (const operation* op : one.ops) {
            errc code = op->code();
            EXPECT_TRUE(code == errc::ok || code == errc::disconnected || code == errc::unreachable)
                << name(op->what().kind) << ": " << amalgam::name(code);
        }
        for (const doomed& other : alive_) {
            EXPECT_FALSE(here_->has_lost(other.peer)) << "somebody else was lost";
            expect_echo(suite_, *here_, other.peer);
        }
    }

    transport_suite& suite_;
    seeded_random dice_;
    mutable_bytes memory_;
    std::vector<child_process*> waiting_;
    std::vector<doomed> alive_;
    node* here_ = nullptr;
};

TEST_P(transport_suite, processes_killed_at_random_leave_the_rest_whole) {
    if (!between_processes()) GTEST_SKIP() << "its ports do not leave the process";
    if (!can(&capabilities::isolates_killed)) GTEST_SKIP() << "its ports share what a kill breaks";
    const int killed = is_brief() ? 6 : 16;
    killing_field field(*this, 1, killed);
    while (!field.over())
        field.step();
    EXPECT_EQ(field.here().lost.size(), static_cast<std::size_t>(killed));
    EXPECT_EQ(field.here().end().open_operations(), 0u);
    field.here().shut();
}

}  // namespace
}  // namespace amalgam::conformance
