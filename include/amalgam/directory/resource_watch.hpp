#pragma once

#include <utility>

#include <amalgam/core/detail/memory.hpp>
#include <amalgam/directory/found_resource.hpp>

namespace amalgam {

namespace detail {
class watch_state;
}

/// A notification from a watch.
struct resource_change {
    /// What happened to the resource.
    enum class kind : unsigned char {
        appeared,  ///< It matches now; at the start of a watch, each that does.
        gone,      ///< It ended, or matches no longer.
        changed,   ///< Still matches; `which` has its new values.
        /// Nothing more is reported: the directory was lost and did not return in time, or changes
        /// came faster than they could be reported or the function could take them (262,144
        /// pending, or 256 MiB of values). Start a new watch.
        ended
    };
    kind what = kind::ended;  ///< What happened.
    found_resource which;     ///< As a query would find it; empty for `ended`.
};

/// Subscription to context::watch(); the function is called while this lives.
///
/// Owner:   the user; may outlive the context.
/// Threads: like a plain value.
/// Failure: end() waits while the function runs, unless called from it, or where nobody can wait:
///          in call_then(), an inline handler or a tasklet.
class [[nodiscard]] resource_watch {
public:
    resource_watch() noexcept = default;  ///< Watches nothing.
    explicit resource_watch(std::shared_ptr<detail::watch_state> of) noexcept
        : of_(std::move(of)) {}
    resource_watch(resource_watch&&) noexcept = default;
    resource_watch& operator=(resource_watch&& other) noexcept {
        resource_watch taken(std::move(other));
        of_.swap(taken.of_);
        return *this;
    }
    ~resource_watch() { end(); }

    /// Ends the subscription: the function is not running and will not run again. Idempotent.
    void end() noexcept;

private:
    std::shared_ptr<detail::watch_state> of_;
};

}  // namespace amalgam
