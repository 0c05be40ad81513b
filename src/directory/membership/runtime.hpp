#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include <amalgam/core/random.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/ult.hpp>

#include "directory/limits.hpp"
#include "directory/membership/ring_user.hpp"
#include "directory/protocol/background.hpp"
#include "directory/protocol/role_policy.hpp"
#include "directory/protocol/served.hpp"

namespace amalgam::detail {

/// What the parts of a ring run on: the engine, the options, the server that they serve, handlers
/// and ULTs.
///
/// Owner:   the object given to start() owns this and all parts; handlers and ULTs share it.
/// Threads: any; start() and serve() one at a time.
class ring_runtime {
public:
    ring_runtime(engine& runs_on, const ring_options& given,
                 std::shared_ptr<const role_policy> admits, std::weak_ptr<ring_user> server);

    void start(std::weak_ptr<void> owner) { owner_ = std::move(owner); }
    /// Ends the handlers, and soon the ULTs.
    void stop() noexcept;

    /// Serves a member function of a part to other members.
    template <typename Part, typename R, typename... A>
    void serve(Part& part, std::string_view name, R (Part::*what)(A...),
               handler how = handler::inline_) {
        served_.serve(std::shared_ptr<Part>(std::shared_ptr<void>(owner_), &part), name, what, how,
                      directory_role::member);
    }
    /// Runs work in its own ULT, which ends soon after stop().
    template <typename Work>
    void run(Work work);
    /// The same for work requested by others. Past a limit it is dropped, counted as
    /// "directory.work_dropped"; a later comparison makes up for it.
    template <typename Work>
    void run_for_others(Work work);

    clock::time_point now() const { return on.now(); }
    /// Time left for the call being served, at most options.answer_limit.
    std::chrono::nanoseconds time_left() const;
    /// Repeats its sequence for the same ring_options::seed.
    std::uint64_t random();
    std::uint64_t random_below(std::uint64_t bound);

    engine& on;
    ring_options options;  ///< Constant once the ring is constructed.
    const std::shared_ptr<const role_policy> lets_in;
    const std::weak_ptr<ring_user> here;  ///< May end before the ring does.
    event stopping;

private:
    served_members served_{on, lets_in};
    std::weak_ptr<void> owner_;
    counter& work_dropped_;  // Others requested too much work.
    std::atomic<int> works_for_others_{0};

    std::mutex lock_;  // Guards chance_. Nothing else is locked or called meanwhile.
    seeded_random chance_;
};

template <typename Work>
void ring_runtime::run(Work work) {
    post_in_background(
        on.pool(), [this, owner = std::shared_ptr<void>(owner_), work = std::move(work)]() mutable {
            if (!stopping.is_set()) work();
        });
}

template <typename Work>
void ring_runtime::run_for_others(Work work) {
    struct place {
        std::atomic<int>& taken;
        explicit place(std::atomic<int>& all) noexcept : taken(all) { ++taken; }
        ~place() { --taken; }
    };
    const auto mine = std::make_shared<place>(works_for_others_);
    if (works_for_others_ > limits::max_works_for_others) return work_dropped_.add();
    run([mine, work = std::move(work)]() mutable { work(); });
}

}  // namespace amalgam::detail
