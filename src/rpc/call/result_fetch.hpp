#pragma once

#include <amalgam/core/buffer.hpp>
#include <amalgam/rpc/extension/loans.hpp>
#include <amalgam/rpc/extension/transfer.hpp>

#include "rpc/memory/rendezvous.hpp"

namespace amalgam::detail {

struct pending_call;

/// Fetches a result, or a stream value, for a pending call. Deletes itself; the call may end first.
///
/// Threads: the engine's stream.
class result_fetch final : public transfer_record {
public:
    result_fetch(engine_core& core, const peer& from, const rendezvous_values& what,
                 pending_call& whose, buffer room, loan_ids loans);
    void begin() noexcept { submit(); }
    /// The call has ended for another reason.
    void give_up() noexcept;

private:
    void over() noexcept override;
    void release() noexcept override;
    void drop_hold() noexcept {
        if (--holds_ == 0) delete this;
    }

    peer from_;
    rendezvous_values what_;
    pending_call* call_;
    buffer room_;
    mutable_bytes into_;
    loan_ids loans_;
    unsigned holds_ = 1;  // Until over(), and from give_up() until release().
};

}  // namespace amalgam::detail
