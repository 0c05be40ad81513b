// flow: a node that sends to another process, while the credit of its receiver arrives, or the run
// is stopped. Batches go no further than the program.
#include <array>

#include <gtest/gtest.h>

#include <amalgam/flow/detail/doorbell.hpp>

#include "flow/channel/sender.hpp"
#include "flow/limits.hpp"
#include "model_check/checker/checker.hpp"

namespace amalgam {
namespace {

const detail::remote_procedure no_procedure{};
/// Of the program: items that have left, each a byte that is its number, from 1.
std::size_t items_sent = 0;

}  // namespace

// In place of the library's, which need a whole engine.
const detail::remote_procedure& engine::intern(std::string_view, std::string) {
    return no_procedure;
}
encoding detail::encoding_of(const engine_core&) noexcept {
    return encoding::native;
}
buffer_pool* detail::one_way::pool_of(const call_target&) {
    return nullptr;
}
bool detail::one_way::may_hold(const const_bytes&) const {
    return true;
}
void detail::one_way::hold(std::shared_ptr<const void>, const_bytes batch) {
    for (const std::byte& item : batch)
        model::require(item == std::byte(++items_sent), "an item is missing, or out of order");
}
void detail::one_way::send() {}

namespace model {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;

using detail::sender;

/// A sender with one receiver, which has been sent the first item.
struct a_sender {
    a_sender() {
        items_sent = 0;
        of.share_bell(room);
        send();
    }

    /// Only its address is used, and that of what it is made of.
    engine& over() {
        auto& made = *reinterpret_cast<engine*>(memory.data());
        made.core_ = reinterpret_cast<detail::engine_core*>(memory.data());
        return made;
    }
    /// As out_port::write().
    void send() {
        *of.extend(1) = std::byte(++sent);
        of.commit();
    }
    /// As out_port::least_busy(), of a node that has at most one item before its receiver.
    void wait_for_room() {
        room.wait_until("room at a worker",
                        [this] { return of.is_stopped() || of.items_before_receivers() == 0; });
    }
    /// The receiver has consumed the first item.
    void credit() { of.credit(0, detail::limits::batch_overhead + 1, 1); }

    alignas(engine) std::array<std::byte, sizeof(engine)> memory{};
    detail::doorbell room;
    sender of{over(), 0, 0, 1, {.batch_bytes = 16, .window_bytes = 1 << 20}, nullptr};
    std::size_t sent = 0;
};

using fault = std::function<void(execution&, a_sender&)>;

a_sender& make_sender(execution& run, const fault& weaken) {
    auto& made = run.make<a_sender>();
    run.name(&made.of.committed_, "committed");
    run.name(&made.of.starving_, "starving");
    run.name(&made.of.consumed_items_, "consumed items");
    run.name(&made.of.is_stopped_, "stopped");
    run.name(&made.of.lock_.state_, "lock");
    run.name(&made.room.waits_, "bell");
    if (weaken) weaken(run, made);
    return made;
}

/// The node sends an item while the receiver asks for more. Nobody will ask again.
result of_starving(const fault& weaken = nullptr) {
    return explore([&](execution& run) {
        a_sender& node = make_sender(run, weaken);
        run.thread([&node] { node.send(); });
        run.thread([&node] { node.credit(); });
        run.afterwards([] { require(items_sent == 2, "an item stays where nobody looks for it"); });
    });
}

/// It begins a new batch meanwhile, so that what is left of this one is sent, by one of the two.
result of_new_batch(const fault& weaken = nullptr) {
    return explore([&](execution& run) {
        a_sender& node = make_sender(run, weaken);
        node.of.end_ = node.of.at_ + 1;
        node.send();
        run.thread([&node] { node.send(); });
        run.thread([&node] { node.credit(); });
        run.afterwards([] { require(items_sent == 2, "an item is not sent, or too early"); });
    });
}

TEST(flow_sender_model, an_item_is_sent_once_its_receiver_has_nothing_left) {
    for (const result& found : {of_starving(), of_new_batch()}) {
        EXPECT_EQ(found.failure, "") << found.trace;
        EXPECT_TRUE(found.complete);
    }
}

/// The node waits until the receiver has no more, or the run is stopped.
result of_room(bool is_stopped, const fault& weaken = nullptr) {
    return explore([&](execution& run) {
        a_sender& node = make_sender(run, weaken);
        run.thread([&node] { node.wait_for_room(); });
        run.thread([&node, is_stopped] { is_stopped ? node.of.stop() : node.credit(); });
    });
}

TEST(flow_sender_model, a_node_does_not_wait_for_room_for_ever) {
    for (const bool is_stopped : {false, true}) {
        const result found = of_room(is_stopped);
        EXPECT_EQ(found.failure, "") << found.trace;
        EXPECT_TRUE(found.complete);
    }
}

template <typename Member>
fault weaker(Member member, act what, std::memory_order order) {
    return [=](execution& run, a_sender& node) { run.weaken(node.of.*member, what, order); };
}

TEST(flow_sender_model, weaker_orders_are_found) {
    const char* const stays = "an item stays where nobody looks for it";
    EXPECT_EQ(of_starving(weaker(&sender::committed_, act::load, acquire)).failure, stays);
    EXPECT_EQ(of_starving(weaker(&sender::committed_, act::store, release)).failure, stays);
    EXPECT_EQ(of_starving(weaker(&sender::starving_, act::load, acquire)).failure, stays);
    EXPECT_EQ(of_starving(weaker(&sender::starving_, act::store, release)).failure, stays);
    EXPECT_NE(of_starving(weaker(&sender::committed_, act::store, relaxed)).failure, "");
    EXPECT_NE(of_new_batch([](execution& run, a_sender& node) {
                  run.weaken(node.of.lock_.state_, act::change, relaxed);
              }).failure,
              "");
}

TEST(flow_sender_model, weaker_orders_of_who_waits_for_room_are_found) {
    const auto sleeps_for_ever = [](bool is_stopped, const fault& weaken) {
        EXPECT_EQ(of_room(is_stopped, weaken).failure, "all threads wait for ever");
    };
    sleeps_for_ever(false, weaker(&sender::consumed_items_, act::load, acquire));
    sleeps_for_ever(false,
                    weaker(&sender::consumed_items_, act::change, std::memory_order_acq_rel));
    sleeps_for_ever(true, weaker(&sender::is_stopped_, act::load, acquire));
    sleeps_for_ever(true, weaker(&sender::is_stopped_, act::store, release));
    sleeps_for_ever(true, [](execution& run, a_sender& node) {
        run.weaken(node.room.waits_, act::store, release);
    });
}

}  // namespace
}  // namespace model
}  // namespace amalgam
