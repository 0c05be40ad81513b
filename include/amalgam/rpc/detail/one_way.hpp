#pragma once

#include <string_view>

#include <amalgam/rpc/detail/call.hpp>

namespace amalgam::detail {

/// A call that wants no answer, while its arguments are written. Lives on the caller's stack:
/// what the port does not take at once moves to a buffer of the engine's.
class one_way {
public:
    explicit one_way(const call_target& target) : arguments(pool_of(target)), target_(target) {}

    template <typename... T>
    void write(const T&... values) {
        const origin between{target_.core, target_.to, &loans_, nullptr};
        archive_writer(arguments, target_.as, &between)(values...);
    }

    body arguments;

    void send();

private:
    static buffer_pool* pool_of(const call_target& target);
    const call_target& target_;
    lent_list loans_;
};

/// Waits while too many messages to the target's peer are queued. Throws error{overloaded}
/// where the caller cannot wait.
void admit(const call_target& target);

/// Throws error{invalid} unless the target's procedure may run twice.
void require_idempotent(const call_target& target);

/// engine_options::encoding.
encoding encoding_of(const engine_core& core) noexcept;

/// engine::lookup().
peer look_up(engine_core& core, std::string_view address);

}  // namespace amalgam::detail
