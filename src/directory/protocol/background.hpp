#pragma once

#include <exception>
#include <utility>

#include <amalgam/core/detail/has_type.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/pool.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam::detail {

/// Posts work of the library's own to a ULT of an engine. When the engine stops, whatever the work
/// waits for throws `canceled`, which ends it and is not logged.
template <typename Work>
void post_in_background(pool& where, Work work) {
    amalgam::post(where, [work = std::move(work)]() mutable {
        try {
            work();
        } catch (const error& why) {
            if (why.code() != errc::canceled) throw;
        }
    });
}

/// For loops that go on after an exception, in a catch block: rethrows `canceled`.
inline void rethrow_if_canceled(const std::exception& why) {
    const auto* const known = cast_if_typed<const error>(why);
    if (known != nullptr && known->code() == errc::canceled) throw;
}

}  // namespace amalgam::detail
