#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include <amalgam/directory/resource_watch.hpp>
#include <amalgam/tasks/pool.hpp>
#include <amalgam/tasks/recursive_mutex.hpp>

#include "directory/resources/registry.hpp"

namespace amalgam::detail {

class context_core;

/// A watch at its context: calls the user's function, one change at a time.
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

    /// Queues a change for the function, which runs soon, in a ULT of `where`, unless it is already
    /// known.
    void note(pool& where, resource_change::kind what, const found_values& which);
    /// The directory was lost: resources reported so far must be reported again to count. Returns
    /// the number of this loss.
    unsigned doubt();
    /// Resources not reported again since then are gone.
    void settle(pool& where, unsigned time);
    void end() noexcept;
    std::uint32_t number() const noexcept { return number_; }
    const attribute_list& query() const noexcept { return query_; }

private:
    struct told {
        found_values what;
        bool in_doubt = false;
    };
    void queue(pool& where, resource_change::kind what, const found_values& which);  // Lock held.
    void overflow(pool& where);                                                      // Lock held.
    void tell_all();

    const std::weak_ptr<context_core> context_;
    const std::uint32_t number_;
    const attribute_list query_;
    const function what_;
    recursive_mutex calling_;
    std::mutex lock_;
    std::deque<resource_change> untold_;
    std::size_t untold_bytes_ = 0;
    bool overflowed_ = false;
    std::map<resource_id, told> there_;
    unsigned doubts_ = 0;
    bool telling_ = false;
    bool ended_ = false;
};

}  // namespace amalgam::detail
