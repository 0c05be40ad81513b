#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <amalgam/core/buffer.hpp>
#include <amalgam/core/bytes.hpp>
#include <amalgam/fabric/region.hpp>
#include <amalgam/rpc/body.hpp>
#include <amalgam/rpc/detail/exposure.hpp>
#include <amalgam/rpc/detail/loans.hpp>
#include <amalgam/rpc/detail/transfer.hpp>

/// Values that are more than a transport moves eagerly stay where they were written, and the
/// message carries a key to them: its receiver gets them one-sidedly.
namespace amalgam::detail {

class engine_core;
class call_record;

void add_key(std::vector<std::byte>& extras, const remote_key& key);
/// False: the values are in the message.
bool key_in(const_bytes extras, remote_key& into) noexcept;

/// Values that a message lends, with the memory they are in.
class lent_values {
public:
    /// Takes the values over. Throws error{no_memory}, error{closed}.
    lent_values(engine_core& core, body&& values, const peer& only);
    const remote_key& key(std::size_t port) const noexcept { return shown_->key(port); }

private:
    core_reference alive_;
    body_bytes values_;
    std::unique_ptr<exposure> shown_;
};

/// Gets the arguments of a request, for who can wait. `into` is as long as the key says.
/// Failure: what transfers end with; `too_large` past the engine's limit.
failure fetch_values(engine_core& core, const peer& from, const remote_key& key, buffer& into);

/// A result on its way to a call that waits for it. Deletes itself; the call may end first.
///
/// Threads: the engine's stream.
class result_fetch final : public transfer_record {
public:
    result_fetch(engine_core& core, const peer& from, const remote_key& key, call_record& whose,
                 buffer room, loan_ids loans);
    void begin() noexcept { submit(); }
    /// The call has ended otherwise.
    void give_up() noexcept;

private:
    void over() noexcept override;
    void release() noexcept override;
    void drop_hold() noexcept {
        if (--holds_ == 0) delete this;
    }

    peer from_;
    call_record* call_;
    buffer room_;
    mutable_bytes into_;
    loan_ids loans_;
    unsigned holds_ = 1;  // Until over(), and from give_up() until release().
};

}  // namespace amalgam::detail
