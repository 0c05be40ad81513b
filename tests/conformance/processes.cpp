#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/random.hpp>

#include "conformance/served.hpp"

namespace amalgam::conformance {
namespace {

/// Only the first and the third of these where the suite does less.
std::vector<int> rounds(std::vector<int> all) {
    return is_brief() ? std::vector<int>{all[0], all[2]} : all;
}

/// A connected serving child, and how often it was lost.
struct partner {
    child_process& process;
    served told;
    peer_id peer;
};

class neighbours {
public:
    explicit neighbours(transport_suite& suite) : suite_(suite) {
        for (int i = 0; i < 2; ++i)
            processes_.push_back(&suite.spawn(
                [&suite](channel& parent) { serve(suite, parent, suite.GetParam()); }));
    }
    /// Opens this process's port and connects.
    void open(const port_options& options = {}) {
        here_ = &suite_.open(options);
        for (child_process* each : processes_) {
            served told = served::from_text(suite_.hear(*each));
            partners_.push_back({*each, told, reach(suite_, *here_, told.address)});
        }
    }
    node& here() { return *here_; }
    partner& victim() { return partners_[0]; }
    partner& bystander() { return partners_[1]; }

    /// After the victim was killed: every operation on it ends, once, and no other peer is
    /// affected.
    void expect_loss(const std::vector<operation*>& ops) {
        suite_.until("the word of the loss", [&] { return here_->has_lost(victim().peer); });
        EXPECT_EQ(here_->loss_of(victim().peer), errc::disconnected);
        for (const operation* op : ops) {
            EXPECT_TRUE(op->over()) << name(op->what().kind);
            if (op->runs() == 1) {
                EXPECT_TRUE(op->code() == errc::disconnected || op->code() == errc::ok)
                    << name(op->what().kind) << ": " << amalgam::name(op->code());
            }
        }
        expect_echo(suite_, *here_, bystander().peer);
        EXPECT_EQ(here_->lost.size(), 1u);
        operation& late =
            suite_.complete(*here_, request::send(victim().peer, 1, suite_.patterned(8, 1)));
        EXPECT_EQ(late.code(), errc::disconnected);
    }

private:
    transport_suite& suite_;
    std::vector<child_process*> processes_;
    std::vector<partner> partners_;
    node* here_ = nullptr;
};

TEST_P(transport_suite, child_of_a_fork_ends_its_ports_and_not_its_parents) {
    connection over = connected_pair();
    operation& waits = start(over.a, request::receive(over.b_at_a, 1, zeroed(8)));
    const pid_t child = ::fork();
    if (child == 0) {  // Completes what is pending with `closed`; a node checks that.
        over.a.shut();
        over.b.shut();
        ::_exit(HasFailure() ? 1 : 0);
    }
    int code = -1;
    ASSERT_EQ(::waitpid(child, &code, 0), child);
    EXPECT_EQ(code, 0);
    start(over.b, request::send_expected(over.a_at_b, 1, patterned(8, 1)));
    finish(waits);
    EXPECT_EQ(waits.code(), errc::ok);
    flush(over);
    connect(over.a, open());
    connect(open(), over.a);
    over.b.shut();  // The parent still hears of the end.
    until("the word of the loss", [&] { return over.a.has_lost(over.b_at_a); });
}

TEST_P(transport_suite, child_of_a_fork_ends_its_regions_and_not_its_parents) {
    constexpr std::size_t bytes = std::size_t{1} << 20;
    connection over = connected_pair();
    shared_block block = over.b.end().allocate(bytes).value();
    region blocks = over.b.end().open_region(block.bytes(), access::read_write).value();
    region plain = over.b.end().open_region(zeroed(bytes), access::read_write).value();
    const auto puts = [&](std::uint64_t seed) {
        const std::uint64_t before = over.b.end().transfers().served;
        for (const region* each : {&blocks, &plain}) {
            EXPECT_EQ(complete(over.a,
                               request::put(over.b_at_a, {patterned(bytes, seed)}, each->key(), 0))
                          .code(),
                      errc::ok);
        }
        EXPECT_TRUE(is_pattern(block.bytes(), seed));
        return over.b.end().transfers().served - before;
    };
    puts(0);  // Whatever is asked once is known from now on.
    const std::uint64_t served = puts(1);
    const pid_t child = ::fork();
    if (child == 0) {
        plain = {};
        blocks = {};
        over.b.shut();
        block = {};
        ::_exit(HasFailure() ? 1 : 0);
    }
    int code = -1;
    ASSERT_EQ(::waitpid(child, &code, 0), child);
    EXPECT_EQ(code, 0);
    EXPECT_EQ(puts(2) == 0, served == 0) << "another way than before";
    EXPECT_TRUE(over.a.lost.empty() && over.b.lost.empty());
}

TEST_P(transport_suite, process_killed_while_idle_ends_what_waits_for_it) {
    if (!between_processes()) GTEST_SKIP() << "its ports do not leave the process";
    neighbours all(*this);
    all.open();
    std::vector<operation*> ops;
    for (std::uint64_t tag = 0; tag < 10; ++tag)
        ops.push_back(&start(all.here(), request::receive(all.victim().peer, tag, zeroed(8))));
    all.victim().process.kill();
    finish(ops);
    for (operation* op : ops)
        EXPECT_EQ(op->code(), errc::disconnected);
    all.expect_loss(ops);
}

TEST_P(transport_suite, loss_of_a_process_is_told_without_any_operation) {
    if (!between_processes()) GTEST_SKIP() << "its ports do not leave the process";
    neighbours all(*this);
    all.open();
    all.victim().process.kill();
    all.expect_loss({});
}

TEST_P(transport_suite, process_killed_while_it_takes_messages_ends_the_sends) {
    if (!between_processes()) GTEST_SKIP() << "its ports do not leave the process";
    neighbours all(*this);
    all.open();
    mutable_bytes large = patterned(served_bytes, 1);
    // Frozen, it reads no more than the connection buffers.
    all.victim().process.freeze();
    std::vector<operation*> ops;
    for (op_kind kind : {op_kind::send, op_kind::send_expected, op_kind::send})
        ops.push_back(&all.here().try_post({kind, all.victim().peer, 1, {large}}));
    for (int i = 0; i < 20; ++i)
        move();
    std::erase_if(ops, [](operation* op) { return op->refused(); });
    all.victim().process.kill();
    finish(ops);
    all.expect_loss(ops);
}

TEST_P(transport_suite, process_killed_in_transfers_of_ours_ends_them) {
    if (!between_processes()) GTEST_SKIP() << "its ports do not leave the process";
    const_bytes out = patterned(served_bytes, 1);
    mutable_bytes into = zeroed(served_bytes);
    for (int after : rounds({0, 1, 3, 10, 50})) {
        neighbours all(*this);
        all.open();
        node& here = all.here();
        peer_id peer = all.victim().peer;
        std::vector<operation*> ops;
        for (int i = 0; i < 3; ++i) {
            ops.push_back(&here.try_post(request::put(peer, {out}, all.victim().told.key, 0)));
            ops.push_back(&here.try_post(request::get(peer, {into}, all.victim().told.key, 0)));
        }
        for (int i = 0; i < after; ++i)
            here.progress(1);
        std::erase_if(ops, [](operation* op) { return op->refused(); });
        all.victim().process.kill();
        finish(ops);
        all.expect_loss(ops);
        here.shut();
    }
}

/// Operations of a child on its parent until it is killed in the middle: greets it, and keeps some
/// operations of this kind in flight.
void pour(transport_suite& suite, channel& parent, op_kind kind) {
    served target = served::from_text(parent.hear());
    node& at = suite.open();
    mutable_bytes bytes = suite.patterned(served_bytes, 1);
    peer_id to;
    errc greeted;
    do {  // On a busy machine a handshake may take longer than the silence limit.
        to = at.end().lookup(target.address).value();
        greeted = suite.complete(at, request::send(to, 0, {})).code();
    } while (greeted == errc::unreachable);
    if (greeted != errc::ok) {
        parent.say("could not greet: " + std::string(amalgam::name(greeted)));
        return;
    }
    bool said = false;
    suite.until("the end of this process", [&] {
        // Keep four in flight; but some transports complete each within its post.
        for (int i = 0; i < 4 && at.open_operations() < 4; ++i) {
            request ask{kind, to, is_atomic(kind) ? 0u : 1u};  // Adds nothing.
            ask.key = target.key;
            if (is_atomic(kind)) {
                ask.into = {bytes.first(8)};
            } else if (kind == op_kind::get) {
                ask.into = {bytes};
            } else {
                ask.from = {bytes};
            }
            if (at.try_post(ask).refused()) break;
        }
        if (!std::exchange(said, true)) parent.say("pouring");
        return false;
    });
}

TEST_P(transport_suite, process_killed_in_the_midst_of_its_own_doing_harms_nobody) {
    if (!between_processes()) GTEST_SKIP() << "its ports do not leave the process";
    if (!can(&capabilities::isolates_killed)) GTEST_SKIP() << "its ports share what a kill breaks";
    mutable_bytes memory = patterned(served_bytes, 1);
    // Nobody takes what is sent, and past the limit the end of the connection would wait behind it.
    port_options roomy;
    roomy.max_queued_bytes = roomy.max_queued_bytes_total = std::size_t{4} << 30;
    bool is_late = false;  // Two of the moments with each kind: every round is three processes.
    for (op_kind kind : {op_kind::send, op_kind::send_expected, op_kind::put, op_kind::get,
                         op_kind::put_notify, op_kind::fetch_add}) {
        is_late = !is_late;
        std::vector<int> moments = is_late ? std::vector<int>{2, 100} : std::vector<int>{0, 10};
        if (is_brief()) moments.pop_back();
        for (int after : moments) {
            SCOPED_TRACE(std::string(name(kind)) + ", killed after " + std::to_string(after));
            child_process& source = spawn([&](channel& parent) { pour(*this, parent, kind); });
            child_process& friendly =
                spawn([&](channel& parent) { serve(*this, parent, GetParam()); });
            node& here = open(roomy);
            region target = here.end().open_region(memory, access::read_write).value();
            const peer_id bystander = reach(*this, here, served::from_text(hear(friendly)).address);
            peer_id pouring;
            here.on_arrival = [&](message& got) {
                pouring = got.from();
                EXPECT_TRUE(got.bytes().empty() || got.bytes().size() == served_bytes);
                EXPECT_TRUE(got.bytes().empty() || are_same(got.bytes(), memory));
            };
            source.line().say(served{here.end().address(), target.key()}.to_text());
            ASSERT_EQ(hear(source), "pouring");
            until("its greeting", [&] { return bool(pouring); });
            for (int i = 0; i < after; ++i)
                here.progress(1);
            source.kill();
            until("the word of the loss", [&] { return here.has_lost(pouring); });
            expect_echo(*this, here, bystander);
            EXPECT_EQ(here.lost.size(), 1u);
            EXPECT_EQ(here.loss_of(pouring), errc::disconnected);
            EXPECT_EQ(here.open_operations(), 0u);
            EXPECT_TRUE(is_pattern(memory, 1));
            target = region();
            here.shut();
            friendly.kill();
        }
    }
}

TEST_P(transport_suite, receive_that_was_landing_when_its_sender_died_is_disconnected) {
    if (!between_processes()) GTEST_SKIP() << "its ports do not leave the process";
    mutable_bytes into = zeroed(served_bytes);
    for (int after : rounds({0, 1, 5, 20})) {
        child_process& source =
            spawn([&](channel& parent) { pour(*this, parent, op_kind::send_expected); });
        node& here = open();
        source.line().say(served{here.end().address(), {}}.to_text());
        arrival greeting = next_arrival(here);
        ASSERT_EQ(hear(source), "pouring");
        source.freeze();
        std::vector<operation*> ops;
        for (int i = 0; i < 20; ++i)
            ops.push_back(&start(here, request::receive(greeting.from, 1, into)));
        for (int i = 0; i < after; ++i)
            here.progress(1);
        source.kill();
        finish(ops);
        EXPECT_EQ(ops.back()->code(), errc::disconnected);
        for (operation* op : ops)
            EXPECT_EQ(op->bytes(), op->code() == errc::ok ? served_bytes : 0);
        until("the word of the loss", [&] { return here.has_lost(greeting.from); });
        here.shut();
    }
}

TEST_P(transport_suite, process_started_again_at_the_same_address_is_somebody_else) {
    if (!between_processes()) GTEST_SKIP() << "its ports do not leave the process";
    child_process& first = spawn([&](channel& parent) { serve(*this, parent, GetParam()); });
    child_process& second = spawn([&](channel& parent) {
        std::string where = parent.hear();
        serve(*this, parent, where);
    });
    node& here = open();
    served old = served::from_text(hear(first));
    peer_id old_peer = reach(*this, here, old.address);
    operation& waits = start(here, request::receive(old_peer, 1, zeroed(8)));
    first.kill();
    second.line().say(old.address);
    served fresh = served::from_text(hear(second));
    EXPECT_EQ(fresh.address, old.address);
    EXPECT_NE(fresh.key.incarnation, old.key.incarnation);
    finish(waits);
    EXPECT_EQ(waits.code(), errc::disconnected);
    until("the word of the loss", [&] { return here.has_lost(old_peer); });

    peer_id peer = here.end().lookup(old.address).value();
    EXPECT_NE(peer, old_peer);
    expect_echo(*this, here, peer);
    const_bytes bytes = patterned(64, 1);
    auto put_with = [&](peer_id to, const remote_key& key) {
        return complete(here, request::put(to, {bytes}, key, 0)).code();
    };
    EXPECT_EQ(put_with(peer, old.key), errc::denied);
    EXPECT_EQ(put_with(old_peer, old.key), errc::disconnected);
    EXPECT_EQ(put_with(old_peer, fresh.key), errc::disconnected);
    EXPECT_EQ(put_with(peer, fresh.key), errc::ok);
    EXPECT_EQ(here.lost.size(), 1u);
}

TEST_P(transport_suite, address_of_a_killed_process_is_unreachable) {
    if (!between_processes()) GTEST_SKIP() << "its ports do not leave the process";
    child_process& gone = spawn([&](channel& parent) { serve(*this, parent, GetParam()); });
    node& here = open();
    std::string address = served::from_text(hear(gone)).address;
    gone.kill();
    auto nobody = here.end().lookup(address);
    ASSERT_TRUE(nobody) << nobody.sentence();
    operation& op = complete(here, request::send(*nobody, 1, patterned(8, 1)));
    EXPECT_EQ(op.code(), errc::unreachable);
}

TEST_P(transport_suite, frozen_process_is_not_gone_past_the_silence_limit) {
    if (!between_processes()) GTEST_SKIP() << "its ports do not leave the process";
    neighbours all(*this);
    port_options impatient;
    impatient.silence_limit = std::chrono::milliseconds(500);
    all.open(impatient);
    node& here = all.here();
    peer_id peer = all.victim().peer;
    operation& receive = start(here, request::receive(peer, 1, zeroed(8)));
    all.victim().process.freeze();
    // A program that computes or is being debugged does not answer, but its machine lives.
    operation& large = start(here, request::send(peer, 1, patterned(served_bytes, 1)));
    auto end = std::chrono::steady_clock::now() + 3 * impatient.silence_limit;
    until("the limit to be long over", [&] { return std::chrono::steady_clock::now() > end; });
    EXPECT_TRUE(here.lost.empty());
    all.victim().process.thaw();
    finish(large);
    EXPECT_EQ(large.code(), errc::ok);
    expect_echo(*this, here, peer);
    EXPECT_TRUE(receive.pending());
    expect_echo(*this, here, all.bystander().peer);
    EXPECT_TRUE(here.lost.empty());
}

}  // namespace
}  // namespace amalgam::conformance
