#include "directory/membership/runtime.hpp"

#include <algorithm>

namespace amalgam::detail {

ring_runtime::ring_runtime(engine& runs_on, const ring_options& given,
                           std::shared_ptr<const role_policy> admits,
                           std::weak_ptr<ring_user> server)
    : on(runs_on),
      options(given),
      lets_in(std::move(admits)),
      here(std::move(server)),
      work_dropped_(runs_on.counters().get("directory.work_dropped")),
      chance_(given.seed != 0 ? given.seed : random_u64()) {}

void ring_runtime::stop() noexcept {
    stopping.set();
    if (options.medium) options.medium->listen({});
    served_.end();
}

std::chrono::nanoseconds ring_runtime::time_left() const {
    const call_context* const call = call_context::try_current();
    if (call == nullptr || !call->deadline()) return options.answer_limit;
    return std::min<std::chrono::nanoseconds>(options.answer_limit, *call->deadline() - now());
}

std::uint64_t ring_runtime::random() {
    const std::lock_guard one(lock_);
    return chance_();
}

std::uint64_t ring_runtime::random_below(std::uint64_t bound) {
    const std::lock_guard one(lock_);
    return chance_.below(bound);
}

}  // namespace amalgam::detail
