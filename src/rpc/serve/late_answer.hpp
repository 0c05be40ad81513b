#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>

#include <amalgam/rpc/detail/answers.hpp>
#include <amalgam/rpc/detail/call.hpp>

#include "rpc/serve/answer_record.hpp"
#include "rpc/serve/invocation.hpp"
#include "rpc/serve/item_sender.hpp"

namespace amalgam::detail {

class outgoing_values;

/// A call answered through a responder, or by values that come from elsewhere. Tracked in place of
/// its invocation, because either may end first.
///
/// Owner:   reference-counted: by the invocation, by the engine until the answer is sent, and by
///          the responder, if the handler got one.
/// Threads: as served_call; the answer comes from any thread.
class late_answer final : public served_call, public late_answer_base {
public:
    /// `window`: of values; 0 for a single answer.
    late_answer(const arrived_call& call, invocation& handler, std::uint32_t window);

    const call_context& about() const noexcept override { return *this; }
    bool claim() noexcept override { return !answered_.exchange(true, std::memory_order_relaxed); }
    answer_values& room() noexcept override { return values_; }
    engine_core& core() noexcept override;
    encoding values_as() const noexcept override { return served_call::values_as(); }
    void send(status what, std::string_view text) noexcept override;
    void add_reference() noexcept override { references_.fetch_add(1, std::memory_order_relaxed); }
    void drop_reference() noexcept override {
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }
    bool handler_unwinds() const noexcept override;

    /// The invocation has ended: the handler can no longer be canceled.
    void handler_done() noexcept;
    const void* unit() noexcept override;
    void cancel() noexcept override;
    void add_credit(std::uint32_t items) noexcept override {
        if (items_) items_->add_credit(items);
    }

    /// Null without a window.
    item_sender* items() noexcept { return items_.get(); }
    /// The values are these, and are told when they are not wanted any more. False: canceled.
    bool answer_with(outgoing_values& values) noexcept;
    /// As send(), but never before this returns: for who walks through the running calls.
    void send_later(status what, std::string_view text) noexcept;

private:
    ~late_answer();

    core_reference alive_;
    answer_values values_;
    answer_record record_;
    std::atomic<unsigned> references_{2};
    std::atomic<bool> answered_{false};
    std::mutex busy_;
    invocation* handler_;
    std::unique_ptr<item_sender> items_;
    outgoing_values* source_ = nullptr;  // A reference; until the end.
};

}  // namespace amalgam::detail
