#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/rpc/detail/call.hpp>
#include <amalgam/rpc/detail/rest_of_message.hpp>

namespace amalgam::detail {

/// Bytes of a message that stay where they are until it was sent.
struct held_range {
    std::shared_ptr<const void> owner;  ///< Let go afterwards, on any thread.
    const_bytes bytes;
};

/// A call that wants no answer, while its arguments are written. Lives on the caller's stack:
/// what the port does not take at once moves to a buffer of the engine's, but for what is held.
class one_way {
public:
    explicit one_way(const call_target& target) : arguments(pool_of(target)), target_(target) {}

    template <typename... T>
    void write(const T&... values) {
        const origin between{target_.core, target_.to, &loans_, nullptr};
        archive_writer(arguments, target_.as, &between)(values...);
    }

    /// Whether the last argument, a span of bytes, is better held than copied: many are.
    bool may_hold(const const_bytes& last) const;
    bool may_hold(const rest_of_message& last) const { return may_hold(last.bytes); }
    /// Writes it so.
    void hold(std::shared_ptr<const void> owner, const_bytes last);
    void hold(std::shared_ptr<const void> owner, const rest_of_message& last);

    body arguments;

    void send();

private:
    static buffer_pool* pool_of(const call_target& target);
    /// More arguments than this are for their receiver to fetch.
    std::size_t most_in_message() const;
    void send_elsewhere(std::vector<std::byte>& extras);

    const call_target& target_;
    lent_list loans_;
    held_range held_;
};

/// Throws error{invalid} unless the target's procedure may run twice.
void require_idempotent(const call_target& target);

/// engine_options::encoding.
encoding encoding_of(const engine_core& core) noexcept;

/// engine::lookup().
peer look_up(engine_core& core, std::string_view address);

}  // namespace amalgam::detail
