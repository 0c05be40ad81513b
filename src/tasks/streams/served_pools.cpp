#include "tasks/streams/served_pools.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <amalgam/core/detail/has_type.hpp>
#include <amalgam/core/status.hpp>

namespace amalgam::detail {

namespace {

template <typename Polymorphic>
void refuse_untyped(const Polymorphic& what, const char* kind) {
    if (has_type(what)) return;
    throw error(errc::invalid, fmt::format("the class of a {0} was compiled without RTTI, expected "
                                           "it with, as streams look at what a {0} is; example: "
                                           "leave out -fno-rtti for the source that defines it",
                                           kind));
}

}  // namespace

std::mutex& served_pools::lock() noexcept {
    static constinit std::mutex one;
    return one;
}

std::vector<served_pools::served>::iterator served_pools::find(const pool& what) noexcept {
    return std::find_if(all_.begin(), all_.end(),
                        [&](const served& each) { return each.what == &what; });
}

void served_pools::attach(const scheduler& of) {
    refuse_untyped(of, "scheduler");
    const auto pools = of.pools();
    for (const pool* each : pools)
        refuse_untyped(*each, "pool");
    if (pools.empty()) {
        throw error(errc::invalid, "a scheduler needs at least one pool");
    }
    std::size_t done = 0;
    const std::lock_guard whole_for_forks(lock());
    try {
        for (pool* each : pools) {
            const auto known = find(*each);
            if (known != all_.end()) {
                ++known->times;
            } else {
                all_.push_back({each, 1});
                if (!each->attach(by_, bell_, stays_, done == 0)) {
                    all_.pop_back();
                    throw error(errc::invalid,
                                fmt::format("stream '{}' cannot serve a pool that another stream "
                                            "already serves: use a pool for several streams, such "
                                            "as shared_fifo_pool, or give each stream its own",
                                            stream_));
                }
            }
            ++done;
        }
    } catch (...) {
        for (std::size_t i = 0; i < done; ++i)
            detach_pool(*pools[i]);
        throw;
    }
}

void served_pools::attach_own() {
    fifo_pool& own = by_.work().own_pool();
    const std::lock_guard whole_for_forks(lock());
    if (const auto known = find(own); known != all_.end()) {
        ++known->times;
    } else {
        all_.push_back({&own, 1});
        static_cast<pool&>(own).attach(by_, bell_, stays_, true);
    }
}

void served_pools::detach_pool(pool& what) noexcept {
    const auto known = find(what);
    if (known == all_.end() || --known->times != 0) return;
    what.detach(by_);
    all_.erase(known);
}

void served_pools::detach(const scheduler& of) noexcept {
    const std::lock_guard whole_for_forks(lock());
    for (pool* each : of.pools())
        detach_pool(*each);
}

void served_pools::detach_all() noexcept {
    const std::lock_guard whole_for_forks(lock());
    for (const served& each : all_)
        each.what->detach(by_);
    all_.clear();
}

void served_pools::prepare_to_detach() noexcept {
    stays_ = false;
    for (const served& each : all_)
        each.what->prepare_to_detach(by_);
}

void served_pools::detach_in_child() noexcept {
    for (const served& each : all_)
        each.what->detach_in_child(by_);
}

// Of two streams that stop at once, the later one to say so runs what both serve.
bool served_pools::has_work_of_its_own() const noexcept {
    return std::any_of(all_.begin(), all_.end(), [this](const served& each) {
        return !each.what->empty() && !each.what->served_on_after(by_);
    });
}

// A push may have woken this stream in place of another one.
void served_pools::hand_over() noexcept {
    for (const served& each : all_) {
        if (!each.what->empty()) each.what->notify();
    }
}

}  // namespace amalgam::detail
