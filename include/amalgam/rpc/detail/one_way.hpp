#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/rpc/detail/call.hpp>
#include <amalgam/rpc/extension/rest_of_message.hpp>

namespace amalgam::detail {

/// Bytes of a message that stay in place until it is sent.
struct held_range {
    std::shared_ptr<const void> owner;  ///< Released afterwards, on any thread.
    const_bytes bytes;
};

/// A one-way call while its arguments are written. Lives on the caller's stack: what the port does
/// not accept at once moves to an engine buffer, except for held bytes.
class one_way {
public:
    explicit one_way(const call_target& target) : arguments(pool_of(target)), target_(target) {}

    template <typename... T>
    void write(const T&... values) {
        const origin between{target_.core, target_.to, &loans_, nullptr, &target_.context};
        archive_writer(arguments, target_.as, &between)(values...);
    }

    /// Whether to hold the last argument, a span of bytes, instead of copying it: true for large
    /// ones.
    bool may_hold(const const_bytes& last) const;
    bool may_hold(const rest_of_message& last) const { return may_hold(last.bytes); }
    /// Writes it as held bytes.
    void hold(std::shared_ptr<const void> owner, const_bytes last);
    void hold(std::shared_ptr<const void> owner, const rest_of_message& last);

    body arguments;

    void send();

private:
    static buffer_pool* pool_of(const call_target& target);
    /// Larger arguments are fetched by the receiver.
    std::size_t most_in_message() const;
    void send_by_rendezvous(std::vector<std::byte>& extras);

    const call_target& target_;
    lent_list loans_;
    held_range held_;
};

/// Throws error{invalid} unless the target's procedure is idempotent.
void require_idempotent(const call_target& target);

/// engine_options::encoding.
encoding encoding_of(const engine_core& core) noexcept;

/// engine::lookup().
peer look_up(engine_core& core, std::string_view address);

}  // namespace amalgam::detail
