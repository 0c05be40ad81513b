#pragma once

#include <amalgam/rpc/detail/answers.hpp>

namespace amalgam {

/// First parameter of a handler that returns any number of values, one by one:
///
///     server.define("count", [](stream_writer<int>& out, int from, int to) {
///         for (int i = from; i < to; ++i) out(i);
///     });
///
/// The caller iterates over them; see streamed. The handler waits while the caller's window is
/// full.
/// Owner:   the engine; lives until the handler returns.
/// Threads: the handler's.
template <typename T>
class stream_writer {
public:
    explicit stream_writer(detail::item_sender_base& to) noexcept : to_(to) {}
    stream_writer(const stream_writer&) = delete;
    stream_writer& operator=(const stream_writer&) = delete;

    /// Sends the next value, of any size. Parks until the caller has credit and the value has left.
    /// A value larger than the eager limit stays here, and this parks until the caller has fetched
    /// it, so such values go one at a time.
    /// Failure: throws error{canceled} when the caller canceled, is gone, or found the value larger
    ///          than its engine_options::max_values_bytes: let it through. Exceptions from
    ///          serializing the value surface, too; that value is not sent, but another may be.
    void operator()(const T& value) {
        to_.await_credit();
        try {
            to_.room().write(to_.core(), to_.about().from(), to_.values_as(), value);
        } catch (...) {
            to_.give_back_credit();
            throw;
        }
        to_.send();
    }

private:
    detail::item_sender_base& to_;
};

}  // namespace amalgam
