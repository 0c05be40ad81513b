#pragma once

#include <cstdint>

#include <amalgam/rpc/detail/answers.hpp>
#include <amalgam/tasks/semaphore.hpp>

#include "rpc/call/invocation.hpp"

namespace amalgam::detail {

/// Sends the values of a streamed result, one at a time, as the caller grants credit. Lives on the
/// handler's stack while the call is tracked.
///
/// Threads: the handler's, except add_credit().
class item_sender final : public item_sender_base {
public:
    /// Credit is capped here: no correct caller grants more.
    static constexpr std::uint32_t most_credit = 1u << 21;

    item_sender(invocation& call, std::uint32_t window) noexcept;

    const call_context& about() const noexcept override { return call_; }
    void await_credit() override;
    void give_back_credit() noexcept override { credit_.release(1); }
    answer_values& room() noexcept override { return values_; }
    engine_core& core() noexcept override;
    encoding values_as() const noexcept override { return call_.values_as(); }
    void send() override;

    /// Any thread.
    void add_credit(std::uint32_t items) noexcept;

private:
    void check_wanted() const;

    invocation& call_;
    answer_values values_;
    semaphore credit_;
};

}  // namespace amalgam::detail
