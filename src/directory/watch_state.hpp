#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include <amalgam/directory/resource_watch.hpp>
#include <amalgam/tasks/pool.hpp>
#include <amalgam/tasks/recursive_mutex.hpp>

#include "directory/registry.hpp"

namespace amalgam::detail {

class context_core;

/// A watch at its context: calls the user's function, one change after the other.
///
/// Threads: any.
class watch_state : public std::enable_shared_from_this<watch_state> {
public:
    using function = std::function<void(const resource_change&)>;

    watch_state(std::weak_ptr<context_core> whose, std::uint32_t number, attribute_list query,
                function what)
        : context_(std::move(whose)),
          number_(number),
          query_(std::move(query)),
          what_(std::move(what)) {}

    /// The function is told of it, soon, in a ULT of `where`.
    void note(pool& where, resource_change::kind what, const found_values& which);
    void end() noexcept;
    std::uint32_t number() const noexcept { return number_; }

private:
    void tell_all();

    const std::weak_ptr<context_core> context_;
    const std::uint32_t number_;
    const attribute_list query_;
    const function what_;
    recursive_mutex calling_;
    std::mutex lock_;
    std::deque<resource_change> untold_;
    bool telling_ = false;
    bool ended_ = false;
};

}  // namespace amalgam::detail
