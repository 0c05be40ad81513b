#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/interceptor.hpp>

#include "rpc/tracing/call_span.hpp"

namespace amalgam::detail {

/// What an engine's options say about its calls, in both directions.
///
/// Threads: any; nothing changes.
struct call_settings {
    explicit call_settings(const engine_options& options)
        : values_as(options.encoding),
          checksums(options.checksum),
          max_values_bytes(options.max_values_bytes),
          max_queued(options.max_queued),
          counted(options.statistics.has_value()),
          of_users(options.interceptors) {
        for (const auto& each : of_users) {
            if (each != nullptr && each->sees_library_procedures()) of_library.push_back(each);
        }
    }

    /// Interceptors that see calls of such a procedure, in list order.
    const std::vector<std::shared_ptr<interceptor>>& interceptors(bool library) const noexcept {
        return library ? of_library : of_users;
    }

    const encoding values_as;
    const bool checksums;  ///< Messages have one.
    const std::size_t max_values_bytes;
    const std::size_t max_queued;
    const bool counted;  ///< See engine_context::statistics().
    std::vector<std::shared_ptr<interceptor>> of_users;
    std::vector<std::shared_ptr<interceptor>> of_library;
    const bool traced = start_tracing();  ///< See AMALGAM_TRACE.
    const bool plain = of_users.empty() && !checksums && !traced &&
                       !counted;  ///< None of what all calls would pay for.
};

}  // namespace amalgam::detail
