#include "conformance/node.hpp"

#include <utility>

#include <gtest/gtest.h>

namespace amalgam::conformance {

node::node(std::unique_ptr<port> end) : end_(std::move(end)), driven_(end_->can().driven) {
    listen();
}

node::~node() {
    shut();
}

operation& node::try_post(request what) {
    record_.push_back(std::make_unique<operation>(*this, std::move(what)));
    operation& op = *record_.back();
    (void)op.post();
    return op;
}

std::size_t node::progress(std::size_t budget) {
    bool before = std::exchange(may_call_back_, true);
    std::uint64_t ran_before = callbacks;
    std::size_t ran = end_->progress(budget);
    if (callbacks - ran_before > budget)
        ADD_FAILURE() << "progress(" << budget << ") ran " << callbacks - ran_before
                      << " messages and completions";
    may_call_back_ = before;
    return ran;
}

void node::cancel(operation& op) {
    bool before = std::exchange(may_call_back_, true);
    end_->cancel(op);
    may_call_back_ = before;
}

void node::close(peer_id peer) {
    callbacks_forbidden here(*this);
    closed_.insert(peer);
    end_->close(peer);
}

void node::shut() {
    if (!end_) return;
    EXPECT_EQ(end_->open_operations(), open_count_)
        << "open_operations() is not the number of pending operations";
    may_call_back_ = true;
    shutting_ = true;
    // Not reset(), which clears the pointer first: completions may still post to the port.
    delete end_.get();
    (void)end_.release();
    may_call_back_ = false;
    for (const auto& op : record_) {
        int due = op->how() == posted::pending ? 1 : 0;
        if (op->runs() != due)
            ADD_FAILURE() << "a " << name(op->what().kind) << " whose post gave "
                          << static_cast<int>(op->how()) << " completed " << op->runs() << " times";
    }
}

errc node::loss_of(peer_id peer) const noexcept {
    for (const peer_loss& loss : lost)
        if (loss.peer == peer) return loss.why.code;
    return errc::ok;
}

void node::took(operation& op) {
    ++open_count_;
    ++open_of_[op.what().peer];
}

void node::completed(operation& op) {
    expect_callback_allowed("a completion");
    ++callbacks;
    --open_count_;
    --open_of_[op.what().peer];
    if (shutting_) {
        EXPECT_EQ(op.code(), errc::closed) << "ended by the port's end, a " << name(op.what().kind);
    }
}

void node::on_message(message& what) noexcept {
    expect_callback_allowed("on_message");
    ++callbacks;
    expect_heard_of(what.from());
    if (on_arrival) {
        on_arrival(what);
        return;
    }
    arrived.push_back({what.from(), what.tag(), {what.bytes().begin(), what.bytes().end()}});
}

void node::on_put(const put_notice& what) noexcept {
    expect_callback_allowed("on_put");
    ++callbacks;
    expect_heard_of(what.from);
    if (on_notice) {
        on_notice(what);
        return;
    }
    notices.push_back(what);
}

void node::expect_heard_of(peer_id peer) const {
    EXPECT_TRUE(peer) << "a message or put of nobody";
    if (down_.count(peer) != 0) ADD_FAILURE() << "a message or put of a peer that is down";
    if (closed_.count(peer) != 0) ADD_FAILURE() << "a message or put of a peer that was closed";
}

void node::on_peer_down(peer_id peer, status why) noexcept {
    expect_callback_allowed("on_peer_down");
    EXPECT_TRUE(peer) << "nobody is down";
    if (!down_.insert(peer).second) ADD_FAILURE() << "on_peer_down ran twice for one peer";
    if (open_of_[peer] != 0)
        ADD_FAILURE() << "on_peer_down ran before " << open_of_[peer] << " operations completed";
    EXPECT_FALSE(why.ok()) << "a peer cannot be down with status ok";
    lost.push_back({peer, why});
    if (on_loss) on_loss(peer, why);
}

void node::expect_callback_allowed(const char* which) const {
    if (!may_call_back_)
        ADD_FAILURE() << which << " ran outside progress(), cancel() and the port's end";
    if (shutting_ && which != std::string("a completion"))
        ADD_FAILURE() << which << " ran inside the port's destructor";
}

}  // namespace amalgam::conformance
