#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/rpc/client_stream.hpp>
#include <amalgam/rpc/detail/bound_target.hpp>
#include <amalgam/rpc/detail/call.hpp>
#include <amalgam/rpc/detail/one_way.hpp>
#include <amalgam/rpc/extension/rest_of_message.hpp>
#include <amalgam/rpc/streamed.hpp>
#include <amalgam/rpc/type_name.hpp>

namespace amalgam {

namespace detail {

template <typename... A>
inline constexpr bool ends_with_bytes = false;
template <typename First, typename... A>
inline constexpr bool ends_with_bytes<First, A...> = ends_with_bytes<A...>;
template <typename Last>
inline constexpr bool ends_with_bytes<Last> =
    std::is_same_v<std::remove_cvref_t<Last>, const_bytes> ||
    std::is_same_v<std::remove_cvref_t<Last>, rest_of_message>;

}  // namespace detail

/// A remote procedure at one peer: the result of `sum.on(peer)`. Every call form takes its
/// arguments by the declared types and serializes them before returning.
///
/// Owner:   a plain value; the engine must outlive it.
/// Threads: like a plain value; call from any ULT or thread. The engine's own stream posts
///          directly, others hand over.
/// Failure: timed_out, overloaded, unavailable (server is stopping; did not run); unreachable,
///          disconnected (look the peer up again); not_found, mismatch (name or signature differ
///          there); too_large, canceled, closed (this engine is stopped); handler_failed with the
///          message of the handler's exception and, if that was an amalgam::error, its code as
///          error::handler_code().
/// Cost:    no allocation in steady state while arguments fit in body::inline_bytes and their own
///          serialization allocates nothing.
template <typename R, typename... A>
class bound_procedure<R(A...)> : public detail::bound_target<bound_procedure<R(A...)>> {
    using base = detail::bound_target<bound_procedure<R(A...)>>;
    using base::target_;
    using result_type = typename detail::checked_result<R>::type;
    static_assert((!detail::is_streaming<A> && ...),
                  "streaming<T> must be the first argument of a signature");

public:
    using base::base;

    /// A copy that retries calls ending as overloaded, unavailable, unreachable, disconnected or
    /// corrupt, until `attempts` were made or the deadline is near. If the peer is gone, even
    /// before the call, it goes to whatever engine is at the looked-up address, such as a restarted
    /// server. Waits `pause` before the second attempt, then doubles it each time until it is a
    /// minute or more.
    /// Failure: throws error{invalid} unless the procedure was declared idempotent, since a call
    ///          whose reply was lost may have run.
    bound_procedure retrying(unsigned attempts,
                             std::chrono::nanoseconds pause = std::chrono::milliseconds(10)) const {
        detail::require_idempotent(target_);
        bound_procedure again(*this);
        again.target_.attempts = static_cast<std::uint16_t>(detail::clamped(attempts, 1000));
        again.target_.pause = pause;
        return again;
    }
    /// Calls, and parks the ULT or thread until the result arrives. Throws amalgam::error.
    result_type operator()(detail::argument_t<A>... arguments) const {
        detail::blocking_call<result_type> call(target_);
        call.write(arguments...);
        return call.run();
    }
    /// The same, but returns failures instead of throwing. That includes exceptions from
    /// serializing an argument: as `invalid`, unless they are amalgam::error. The other forms let
    /// those through and send nothing.
    result<result_type> try_call(detail::argument_t<A>... arguments) const {
        try {
            detail::blocking_call<result_type> call(target_);
            call.write(arguments...);
            return call.try_run();
        } catch (...) {  // From serialization, or a caller that cannot wait.
            return detail::thrown_here("serializing the arguments or the result");
        }
    }
    /// Starts the call and returns a future for the result. Destroying the future early, or
    /// cancel(), cancels the call here and at the handler. Parks the caller only while `max_queued`
    /// calls to this peer wait to be sent. Where the caller cannot park, such a call ends as
    /// `overloaded` and is not retried.
    future<result_type> start(detail::argument_t<A>... arguments) const {
        auto call = std::make_unique<detail::future_call<result_type>>(target_);
        call->write(arguments...);
        return call.release()->launch();
    }
    /// Starts the call; `then(result<R>)` receives the outcome exactly once, on the engine's
    /// stream, where it must not wait. Its exceptions are logged. It may run before this returns,
    /// and may stop or destroy the engine. Waits like start().
    template <typename Function>
    requires(std::is_invocable_v<Function&, result<result_type>>) void call_then(
        Function then, detail::argument_t<A>... arguments) const {
        auto call =
            std::make_unique<detail::told_call<result_type, Function>>(target_, std::move(then));
        call->write(arguments...);
        call.release()->launch();
    }
    /// Fire and forget: reports no result and no remote failure, except a wrong name or signature,
    /// which is logged here. Calls of one ULT to one peer start there in posting order, except
    /// those whose arguments exceed the transport's message limit (1 GiB, except for loop://): they
    /// start once the arguments are fetched, and later ones may overtake them. Waits like start()
    /// when too many are queued.
    /// Failure: throws only what is known at once: no_memory, too_large, overloaded, closed, and
    ///          unreachable or disconnected for a peer already lost. A message lost later is
    ///          counted as "rpc.one_ways_lost", and logged if the engine's stream had no memory to
    ///          send what another thread posted; one the peer refused, as when too many run there
    ///          (engine_options::max_one_ways), as "rpc.one_ways_refused". Stopping or destroying
    ///          the engine first lets it leave, within engine_options::drain, except from a tcp
    ///          socket that accepts no more.
    void post(detail::argument_t<A>... arguments) const {
        detail::one_way message(target_);
        message.write(arguments...);
        message.send();
    }
    /// post() without copying the last argument, a span of bytes: it must stay unchanged until
    /// sent. `owner` is held until then and keeps it alive. Small spans are copied anyway. A span
    /// that cannot be read then is a message lost later.
    template <typename Owner>
    requires(detail::ends_with_bytes<A...>) void post_held(
        const std::shared_ptr<Owner>& owner, detail::argument_t<A>... arguments) const {
        detail::one_way message(target_);
        const auto all = std::forward_as_tuple(arguments...);
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            message.write(std::get<I>(all)...);
        }
        (std::make_index_sequence<sizeof...(A) - 1>());
        const auto& last = std::get<sizeof...(A) - 1>(all);
        message.may_hold(last) ? message.hold(owner, last) : message.write(last);
        message.send();
    }
};

/// The same for a procedure that returns a stream of values.
template <typename T, typename... A>
class bound_procedure<streamed<T>(A...)>
    : public detail::bound_stream_target<bound_procedure<streamed<T>(A...)>> {
    using base = detail::bound_stream_target<bound_procedure<streamed<T>(A...)>>;
    using base::target_;

public:
    using base::base;

    /// Starts the call. Waits like bound_procedure::start(); reading waits for the values.
    streamed<T> operator()(detail::argument_t<A>... arguments) const {
        auto call = std::make_unique<detail::typed_stream_call<T>>(target_);
        call->write(arguments...);
        auto* const begun = call.release();
        begun->launch();
        return streamed<T>(*begun);
    }
};

/// A remote procedure by name and type, not yet bound to a peer.
///
///     auto sum = client.procedure<int(int, int)>("sum");
///     int five = sum.on(peer)(2, 3);
///
/// Owner:   a plain value; its engine must outlive it.
/// Threads: like a plain value.
template <typename Signature>
class procedure;

template <typename R, typename... A>
class procedure<R(A...)> {
public:
    procedure(detail::engine_core& core, const detail::remote_procedure& what, bool idempotent,
              archive_context context = {}) noexcept {
        target_.core = &core;
        target_.what = &what;
        target_.idempotent = idempotent;
        target_.as = detail::encoding_of(core);
        target_.dressed = static_cast<bool>(context);
        target_.context = std::move(context);
    }

    /// `provider`: which of the providers at that peer; see procedure_options::provider.
    bound_procedure<R(A...)> on(const peer& there, std::uint16_t provider = 0) const noexcept {
        return bound_procedure<R(A...)>(target_, there, provider);
    }
    /// Looks the address up each time: for more than a few calls, keep the peer.
    bound_procedure<R(A...)> on(std::string_view address, std::uint16_t provider = 0) const {
        return on(detail::look_up(*target_.core, address), provider);
    }

    std::string_view name() const noexcept { return target_.what->name; }
    /// As text: "i32(i32,i32)".
    std::string_view signature() const noexcept { return target_.what->signature; }
    /// Its id on the wire.
    std::uint64_t id() const noexcept { return target_.what->id; }

private:
    detail::call_target target_;
};

}  // namespace amalgam
