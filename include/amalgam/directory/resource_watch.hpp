#pragma once

#include <memory>
#include <utility>

#include <amalgam/directory/found_resource.hpp>

namespace amalgam {

namespace detail {
class watch_state;
}

/// What a watch tells of.
struct resource_change {
    enum class kind : unsigned char {
        appeared,
        gone,
        changed,  ///< It fitted before, and does so still; `which` has its present values.
        /// Nothing more is told: the directory is lost and did not come back in time, or changes
        /// came faster than they could be told, or than the function takes them (262,144 of them
        /// wait for it, or 256 MiB of values). Watch anew.
        ended
    };
    kind what = kind::ended;
    found_resource which;  ///< As a query would find it; nothing with `ended`.
};

/// Keeps the function of context::watch() called, while it lives.
///
/// Owner:   the user; it may outlive the context.
/// Threads: like a plain value.
/// Failure: end() waits while the function runs, unless that is who calls it.
class [[nodiscard]] resource_watch {
public:
    resource_watch() noexcept = default;  ///< Of nothing.
    explicit resource_watch(std::shared_ptr<detail::watch_state> of) noexcept
        : of_(std::move(of)) {}
    resource_watch(resource_watch&&) noexcept = default;
    resource_watch& operator=(resource_watch&& other) noexcept {
        resource_watch taken(std::move(other));
        of_.swap(taken.of_);
        return *this;
    }
    ~resource_watch() { end(); }

    /// The function is not called any more, and does not run. Idempotent.
    void end() noexcept;

private:
    std::shared_ptr<detail::watch_state> of_;
};

}  // namespace amalgam
