#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>

#include <amalgam/core/next_iterator.hpp>
#include <amalgam/rpc/archive.hpp>
#include <amalgam/rpc/detail/borrowed.hpp>
#include <amalgam/rpc/detail/incoming_values.hpp>
#include <amalgam/rpc/streamed.hpp>
#include <amalgam/rpc/type_name.hpp>

namespace amalgam {

/// In the signature of a call, as its first argument: the caller sends any number of `T`, one by
/// one, while the handler runs. See client_stream and duplex_stream for callers, stream_reader for
/// handlers. In text: "stream<i32>".
template <typename T>
struct streaming {
    std::uint64_t id = 0;  ///< By which the handler finds the values.
};

/// First parameter of a handler that reads values from its caller:
///
///     server.define("sum", [](stream_reader<int>& in, int start) {
///         for (int each : in) start += each;
///         return start;
///     });
///     server.define("double", [](stream_reader<int>& in, stream_writer<int>& out) {
///         for (int each : in) out(2 * each);
///     });
///
/// Callers know these as `int(streaming<int>, int)` and `streamed<int>(streaming<int>)`. Such a
/// handler runs in a ULT, never inline.
/// Owner:   the engine; lives until the handler returns. The caller's next send() then returns
///          false.
/// Threads: one at a time; the handler's, and of ULTs that it joins.
/// Failure: next() throws error{canceled} if the caller canceled or left without finish(),
///          error{timed_out} past the call's deadline, error{disconnected} if the caller is gone;
///          the amalgam::error that reading a value threw, and error{mismatch} with the text of
///          any other exception of it; error{too_large} for one past
///          engine_options::max_values_bytes.
/// Cost:    one call back to the caller, before the first value; then as streamed. At most one
///          window of values is here unread, each of at most one message; a larger one is fetched
///          when its turn comes. engine_options::max_reader_bytes bounds all readers together.
template <typename T>
class stream_reader {
    static_assert(!detail::is_borrowed<T>,
                  "a value of a stream must not be a view: read std::string or std::vector");

public:
    using value_type = T;

    explicit stream_reader(const streaming<T>& which) : from_(which.id) {}
    stream_reader(const stream_reader&) = delete;
    stream_reader& operator=(const stream_reader&) = delete;

    /// How many values the caller may send ahead: 1 to 1,048,576, 64 by default; fewer where
    /// max_reader_bytes is reached. Before the first next().
    /// Failure: throws error{invalid} after it.
    void window(std::uint32_t values) { from_.set_window(values); }
    /// Parks until there is a value; empty after the last.
    std::optional<T> next() { return values().next(); }

    /// Single pass: reads values as it goes.
    using iterator = next_iterator<stream_reader, T>;
    iterator begin() { return iterator(*this); }
    std::default_sentinel_t end() const noexcept { return {}; }

private:
    streamed<T>& values() {
        if (!values_) {
            auto call = std::make_unique<detail::typed_stream_call<T>>(from_.begin());
            call->write(from_.id());
            call->bound_memory(from_.value_bytes());
            auto* const begun = call.release();
            begun->launch();
            values_.emplace(*begun);
        }
        return *values_;
    }

    detail::incoming_values from_;
    std::optional<streamed<T>> values_;
};

template <typename T>
struct codec<streaming<T>> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = 8;

    static void save(archive_writer& to, const streaming<T>& which) { to(which.id); }
    static void load(archive_reader& from, streaming<T>& which) { from(which.id); }
};

namespace detail {

template <typename T>
inline constexpr bool is_streaming = false;
template <typename T>
inline constexpr bool is_streaming<streaming<T>> = true;

template <typename T>
struct namer<streaming<T>> {
    static std::string name() { return "stream<" + type_name<T>() + ">"; }
};

}  // namespace detail

}  // namespace amalgam
