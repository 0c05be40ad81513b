#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <amalgam/core/detail/memory.hpp>
#include <amalgam/rpc/extension/origin.hpp>

/// Borrowed buffers: memory of a message's sender that the receiver may use until it releases it.
/// See docs/wire/rpc.md. Values refer to them by id; the message header lists the ids.
namespace amalgam::detail {

class loan_end;

/// One lent buffer, on the sender's side.
struct lent {
    std::uint64_t id = 0;
    std::shared_ptr<void> what;
    std::size_t bytes = 0;            ///< Size of memory kept only for this loan.
    std::shared_ptr<loan_end> end{};  ///< Null: nobody waits for it.
};
using lent_list = std::vector<lent>;
using loan_ids = std::vector<std::uint64_t>;

/// While writing a value: lends `what` to the message's receiver. It is kept until the receiver
/// releases it or is gone, or the message could not be sent. `bytes` is the size of memory kept
/// only for this loan. Returns the id to write.
/// Failure: throws error{unsupported} for an archive that is not an engine's message,
///          error{no_memory}.
std::uint64_t lend(const origin* between, std::shared_ptr<void> what, std::size_t bytes);

/// While reading a value: takes over the loan; the value must then call release_loan() once. False:
/// the message lends nothing under this id, or another value has taken it.
bool take_loan(const origin* between, std::uint64_t id) noexcept;

/// Tells the lender that the memory is no longer used. Any thread; the engine may have ended.
void release_loan(engine_core& core, const peer& lender, std::uint64_t id) noexcept;

}  // namespace amalgam::detail
