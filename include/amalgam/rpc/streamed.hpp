#pragma once

#include <cstddef>
#include <iterator>
#include <optional>
#include <utility>

#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/next_iterator.hpp>
#include <amalgam/rpc/detail/stream_call.hpp>
#include <amalgam/rpc/type_name.hpp>

namespace amalgam {

/// The stream of values a handler yields, on the caller's side:
///
///     auto count = client.procedure<streamed<int>(int, int)>("count");
///     for (int i : count.on(peer)(1, 100)) …
///
/// At most one window of values is sent and unread, so a slow reader holds the handler back and
/// memory stays bounded. See bound_procedure::window(), which counts values of any size.
/// Owner:   one end of a call. Destroying it before the last value cancels the call: the handler's
///          next write or wait ends. May outlive the engine: next() then returns the values that
///          had arrived, and throws.
/// Threads: one at a time, any ULT or thread. cancel() may be called from any, at any time.
/// Failure: after the values that arrived, next() throws the error that ended the call;
///          error{invalid} if moved from.
/// Cost:    a few allocations per call; per value, those of a container of `T`.
template <typename T>
class [[nodiscard]] streamed {
public:
    using value_type = T;

    explicit streamed(detail::typed_stream_call<T>& call) noexcept : call_(&call) {}
    streamed(streamed&& other) noexcept : call_(std::exchange(other.call_, nullptr)) {}
    streamed& operator=(streamed&& other) noexcept {
        streamed moved(std::move(other));
        std::swap(call_, moved.call_);
        return *this;
    }
    ~streamed() {
        if (call_ != nullptr) call_->leave();
    }

    /// Parks until there is a value; empty after the last.
    std::optional<T> next() {
        if (call_ == nullptr) detail::refuse_empty_stream();
        return call_->next();
    }
    /// Asks the handler to end. Values already received may still be read; after them next() throws
    /// error{canceled} at once, even if already waiting. Does not wait.
    void cancel() noexcept {
        if (call_ != nullptr) call_->cancel();
    }

    /// Single pass: reads values as it goes.
    using iterator = next_iterator<streamed, T>;
    iterator begin() { return iterator(*this); }
    std::default_sentinel_t end() const noexcept { return {}; }

private:
    detail::typed_stream_call<T>* call_;
};

namespace detail {
template <typename T>
struct namer<streamed<T>> {
    static std::string name() { return "stream<" + type_name<T>() + ">"; }
};
}  // namespace detail

}  // namespace amalgam
