#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <amalgam/core/buffer.hpp>
#include <amalgam/core/bytes.hpp>
#include <amalgam/fabric/region.hpp>
#include <amalgam/rpc/body.hpp>
#include <amalgam/rpc/extension/exposure.hpp>
#include <amalgam/rpc/extension/loans.hpp>
#include <amalgam/rpc/extension/transfer.hpp>

#include "rpc/memory/loan_end.hpp"

/// Rendezvous: values above the transport's eager limit stay in the sender's memory, and the
/// message carries a key to them; the receiver fetches them one-sidedly.
namespace amalgam::detail {

class engine_core;

/// Location of a message's values, if they are not in it.
struct rendezvous_values {
    remote_key key;  ///< Has the length of the values.
    std::optional<std::uint32_t> checksum{};

    /// Whether the fetched bytes match the sender's checksum, if it sent one.
    bool are(const_bytes fetched) const noexcept;
};
inline constexpr std::string_view damaged_rendezvous =
    "the values were corrupted in transit: checksum mismatch; call again";

/// `checked`: adds a checksum of `values`, as the message itself has one.
void add_rendezvous(std::vector<std::byte>& extras, const remote_key& key, const_bytes values,
                    bool checked);
/// Empty if the values are in the message.
std::optional<rendezvous_values> rendezvous_in(const_bytes extras) noexcept;

/// Values exposed for a message, with the memory they are in.
class lent_values {
public:
    /// Takes over the values. `end`: set when peers no longer use them; or null. Throws
    /// error{no_memory}, error{closed}.
    lent_values(engine_core& core, body&& values, const peer& only,
                std::shared_ptr<loan_end> end = nullptr);
    lent_values(const lent_values&) = delete;
    lent_values& operator=(const lent_values&) = delete;
    ~lent_values() {
        if (end_) end_->set(loan_end::how::dropped);
    }
    const_bytes bytes() const noexcept { return values_.values; }
    const remote_key& key(std::size_t port) const noexcept { return shown_->key(port); }

private:
    core_reference alive_;
    body_bytes values_;
    std::unique_ptr<exposure> shown_;
    std::shared_ptr<loan_end> end_;
};

/// The memory described by `key`, at this peer.
transfer_target target_of(engine_core& core, const peer& from, const remote_key& key) noexcept;

/// Fetches the arguments of a request; the caller must be able to wait. `into` has the length given
/// by the key.
/// Failure: those of transfers; `corrupt`. Throws error{canceled} if its ULT is canceled.
failure fetch_values(engine_core& core, const peer& from, const rendezvous_values& what,
                     buffer& into);

}  // namespace amalgam::detail
