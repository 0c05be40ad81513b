#include "rpc/context/health_state.hpp"

#include <string>
#include <utility>

#include "rpc/limits.hpp"

namespace amalgam::detail {

void health_state::set(bool serving, std::string_view sentence) {
    std::string fresh(sentence.substr(0, limits::max_about_bytes));
    const std::lock_guard hold(lock_);
    serving_ = serving;
    sentence_.swap(fresh);
}

engine_health health_state::now(std::size_t running) const {
    const std::lock_guard hold(lock_);
    return {serving_, sentence_, running};
}

}  // namespace amalgam::detail
