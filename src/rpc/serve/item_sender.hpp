#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include <amalgam/rpc/detail/answers.hpp>
#include <amalgam/tasks/semaphore.hpp>

#include "rpc/memory/loan_end.hpp"
#include "rpc/serve/invocation.hpp"
#include "rpc/tracing/stream_span.hpp"

namespace amalgam::detail {

/// Sends the values of a streamed result, one at a time, as the caller grants credit. Lives while
/// the call is tracked.
///
/// Threads: the sender's, except add_credit() and stop_waiting().
class item_sender final : public item_sender_base {
public:
    /// Credit is capped here: no correct caller grants more.
    static constexpr std::uint32_t most_credit = 1u << 21;

    item_sender(served_call& call, std::uint32_t window) noexcept;
    /// The values are those of another procedure's stream, which counts them.
    void count_in(stream_counts& other) noexcept { counts_ = &other; }

    const call_context& about() const noexcept override { return call_; }
    void await_credit() override;
    void give_back_credit() noexcept override { credit_.release(1); }
    answer_values& room() noexcept override { return values_; }
    engine_core& core() noexcept override;
    encoding values_as() const noexcept override { return call_.values_as(); }
    void send() override;

    /// Any thread.
    bool waits_for_credit() const noexcept { return waits_.load(std::memory_order_relaxed); }
    void add_credit(std::uint32_t items) noexcept;
    /// Ends the sender's wait, where canceling the call cancels no ULT that waits. Any thread, once
    /// the call is canceled.
    void stop_waiting() noexcept;

private:
    void check_wanted() const;
    void await_return(std::shared_ptr<loan_end> returned);

    served_call& call_;
    stream_counts* counts_;
    std::unique_ptr<stream_span> span_;  // While the handler's call is recorded.
    answer_values values_;
    semaphore credit_;
    std::atomic<bool> waits_{false};
    std::mutex busy_;
    std::shared_ptr<loan_end> returned_;  // While a large value is being fetched.
};

}  // namespace amalgam::detail
