#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <amalgam/rpc/detail/origin.hpp>

/// What messages lend: memory of the sender that a receiver may use until it releases it. See
/// docs/wire/rpc.md. The values of a message name their loans by id, and so does its header.
namespace amalgam::detail {

/// One thing that a message lends, as its sender keeps it.
struct lent {
    std::uint64_t id = 0;
    std::shared_ptr<void> what;
    std::size_t bytes = 0;  ///< Of memory that is kept for this loan alone.
};
using lent_list = std::vector<lent>;
using loan_ids = std::vector<std::uint64_t>;

/// While a value is written: the message lends `what`, which is kept until its receiver has
/// released it, or is gone, or the message could not be sent; so many `bytes` are kept for this
/// loan alone. Returns the id to write.
/// Failure: throws error{unsupported} in an archive that is no message of an engine's,
///          error{no_memory}.
std::uint64_t lend(const origin* between, std::shared_ptr<void> what, std::size_t bytes);

/// While a value is read: it takes over the loan, and with it the duty to release_loan() once.
/// False: the message lends nothing of this id, or another value has it.
bool take_loan(const origin* between, std::uint64_t id) noexcept;

/// Tells the lender that it is not used any more. Any thread; the engine may have ended.
void release_loan(engine_core& core, const peer& lender, std::uint64_t id) noexcept;

}  // namespace amalgam::detail
