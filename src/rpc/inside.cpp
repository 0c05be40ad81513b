#include <amalgam/rpc/detail/inside.hpp>
#include <amalgam/tasks/ult.hpp>

#include "rpc/engine_core.hpp"

namespace amalgam::detail {

peer self_of(const engine_core& core) noexcept {
    return core.self();
}
std::uint64_t home_of(const engine_core& core) noexcept {
    return core.home();
}
std::size_t port_count(const engine_core& core) noexcept {
    return core.port_addresses().size();
}
const std::string& port_address(const engine_core& core, std::size_t port) noexcept {
    return core.port_addresses()[port];
}
result<peer> find_peer(engine_core& core, std::string_view address) {
    try {
        return core.lookup(address);
    } catch (const error& why) {
        return failure{why.code(), why.what()};
    }
}
clock::time_point now_of(const engine_core& core) noexcept {
    return core.now();
}
bool can_wait_here(const engine_core& core) noexcept {
    return !core.driven() || this_task::in_ult();
}

}  // namespace amalgam::detail
