#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/next_iterator.hpp>
#include <amalgam/directory/found_resource.hpp>

namespace amalgam {

namespace detail {
class context_core;
}

/// A query with many answers, one at a time:
///
///     for (found_resource& each : here.search({{"type", "server"}})) …
///
/// A resource that matches throughout is found once; one that appears or goes meanwhile, at most
/// once.
/// Owner:   destruction stops the search.
/// Threads: one at a time.
/// Failure: next() throws error{disconnected} when the directory is lost, error{closed} when the
///          context ends, which may be while it runs. Other directories that
///          are lost or silent are skipped: see missed().
/// Cost:    one call to the directory per answer.
class [[nodiscard]] resource_search {
public:
    resource_search(resource_search&& other) noexcept = default;
    resource_search& operator=(resource_search&& other) noexcept {
        stop();
        core_ = std::move(other.core_);
        query_ = std::move(other.query_);
        number_ = other.number_;
        silent_ = other.silent_;
        return *this;
    }
    ~resource_search() { stop(); }

    /// Parks the ULT or thread until there is an answer; empty after the last.
    std::optional<found_resource> next();
    /// Ends the search. Idempotent.
    void stop() noexcept;
    /// Minimum number of directories whose answers are incomplete, because they are gone or did not
    /// answer. Read it after the last answer: 0 means that the search is complete.
    std::size_t missed() const noexcept { return silent_; }

    /// Goes through the answers by next().
    using iterator = next_iterator<resource_search, found_resource>;
    iterator begin() { return iterator(*this); }
    std::default_sentinel_t end() const noexcept { return {}; }

private:
    friend class context;
    resource_search(std::shared_ptr<detail::context_core> core, attribute_list query,
                    std::uint32_t number) noexcept
        : core_(std::move(core)), query_(std::move(query)), number_(number) {}

    std::shared_ptr<detail::context_core> core_;  // Null: it has ended.
    attribute_list query_;
    std::uint32_t number_ = 0;
    std::uint32_t silent_ = 0;
};

}  // namespace amalgam
