#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <amalgam/rpc/archive.hpp>
#include <amalgam/rpc/detail/borrowed.hpp>
#include <amalgam/rpc/detail/call.hpp>
#include <amalgam/rpc/peer.hpp>

/// What the typed forms of calls share.
namespace amalgam {

template <typename Signature>
class bound_procedure;

}  // namespace amalgam

namespace amalgam::detail {

template <typename T>
struct argument {
    using type = const T&;
};
template <>
struct argument<std::string> {
    using type = std::string_view;  // A literal needs no std::string.
};
template <typename T>
using argument_t = typename argument<std::remove_cvref_t<T>>::type;

/// What a call returns to its caller.
template <typename R>
struct checked_result {
    using type = std::remove_cvref_t<R>;
    static_assert(!is_borrowed<type>,
                  "a result must not be a view into the reply: return std::string or std::vector");
    static_assert(std::is_void_v<R> || std::is_default_constructible_v<type> || self_loading<type>,
                  "a result type needs a default constructor, or static T "
                  "amalgam_load(amalgam::archive_reader&)");
};

constexpr std::uint32_t clamped(std::uint32_t value, std::uint32_t most) noexcept {
    return value == 0 ? 1 : value > most ? most : value;
}

/// Call settings that do not depend on the result type. `Bound` derives from this.
template <typename Bound>
class bound_target {
public:
    /// A copy with a deadline of `time` from each call; it travels with the call. Inside a handler,
    /// the earlier of this and the handler's own applies. Without one, a call waits as long as its
    /// peer is connected, also for one that is stopped or hangs: see keepalive_options.
    Bound within(std::chrono::nanoseconds time) const noexcept {
        return with([&](call_target& each) { each.timeout = time; });
    }

    /// A copy that makes urgent calls: they go ahead of queued messages, their handlers start
    /// before others that are ready, and they are refused for load only at twice the usual limit.
    /// For few, small control calls.
    Bound urgent() const noexcept {
        return with([](call_target& each) { each.urgent = true; });
    }
    /// A copy that makes each call a span of this trace. Calls made in a handler join its trace
    /// anyway.
    Bound traced(const trace_context& span) const noexcept {
        return with([&](call_target& each) {
            each.trace = span;
            each.dressed = true;
        });
    }
    /// A copy whose calls' serialize() functions see this object here, in place of
    /// calling_options::context and engine_options::context: see archive_context. The calls share
    /// it until they are over.
    Bound with_context(archive_context object) const noexcept {
        return with([&](call_target& each) {
            each.context = std::move(object);
            each.dressed = true;
        });
    }

    // Modifies the one copy of the target in place: this is on the path of every call.
    bound_target(const call_target& target, const peer& there, std::uint16_t provider) noexcept
        : target_(target) {
        target_.to = there;
        target_.provider = provider;
    }

protected:
    template <typename Change>
    Bound with(Change change) const noexcept {
        Bound other(static_cast<const Bound&>(*this));
        change(static_cast<bound_target&>(other).target_);
        return other;
    }

    call_target target_;
};

/// The same for calls that are answered by a stream.
template <typename Bound>
class bound_stream_target : public bound_target<Bound> {
public:
    using bound_target<Bound>::bound_target;

    /// A copy with this credit window for the answers: how many may be in flight or unread. At
    /// least 1. The window for values that the handler reads is the handler's to set:
    /// stream_reader::window().
    Bound window(std::uint32_t values) const noexcept {
        return this->with([&](call_target& each) { each.window = clamped(values, 1u << 20); });
    }
};

}  // namespace amalgam::detail
