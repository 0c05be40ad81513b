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
#include <amalgam/rpc/detail/exposure.hpp>
#include <amalgam/rpc/detail/loans.hpp>
#include <amalgam/rpc/detail/transfer.hpp>
#include <amalgam/tasks/event.hpp>

/// Values that are more than a transport moves eagerly stay where they were written, and the
/// message carries a key to them: its receiver gets them one-sidedly.
namespace amalgam::detail {

class engine_core;
class call_record;

/// Where the values of a message are, when they are not in it.
struct values_elsewhere {
    remote_key key;  ///< As long as they are.
    std::optional<std::uint32_t> checksum{};

    /// What was fetched is what was sent, as far as its sender said.
    bool are(const_bytes fetched) const noexcept;
};
inline constexpr std::string_view damaged_elsewhere =
    "its values were damaged when they were fetched: the checksum is wrong; call again";

/// `values`: with their checksum if `checked`, as the message itself has one.
void add_elsewhere(std::vector<std::byte>& extras, const remote_key& key, const_bytes values,
                   bool checked);
/// Nothing: the values are in the message.
std::optional<values_elsewhere> elsewhere_in(const_bytes extras) noexcept;

/// Values that a message lends, with the memory they are in.
class lent_values {
public:
    /// Takes the values over. `returned`: is set at the end, when no peer uses them any more; or
    /// null. Throws error{no_memory}, error{closed}.
    lent_values(engine_core& core, body&& values, const peer& only,
                std::shared_ptr<event> returned = nullptr);
    lent_values(const lent_values&) = delete;
    lent_values& operator=(const lent_values&) = delete;
    ~lent_values() {
        if (returned_) returned_->set();
    }
    const_bytes bytes() const noexcept { return values_.values; }
    const remote_key& key(std::size_t port) const noexcept { return shown_->key(port); }

private:
    core_reference alive_;
    body_bytes values_;
    std::unique_ptr<exposure> shown_;
    std::shared_ptr<event> returned_;
};

/// Gets the arguments of a request, for who can wait. `into` is as long as the key says.
/// Failure: what transfers end with; `corrupt`. Throws error{canceled} when its ULT is canceled.
failure fetch_values(engine_core& core, const peer& from, const values_elsewhere& what,
                     buffer& into);

/// A result, or a value of a stream, on its way to a call that waits for it. Deletes itself; the
/// call may end first.
///
/// Threads: the engine's stream.
class result_fetch final : public transfer_record {
public:
    result_fetch(engine_core& core, const peer& from, const values_elsewhere& what,
                 call_record& whose, buffer room, loan_ids loans);
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
    values_elsewhere what_;
    call_record* call_;
    buffer room_;
    mutable_bytes into_;
    loan_ids loans_;
    unsigned holds_ = 1;  // Until over(), and from give_up() until release().
};

}  // namespace amalgam::detail
