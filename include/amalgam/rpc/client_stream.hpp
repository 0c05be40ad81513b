#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include <amalgam/core/next_iterator.hpp>
#include <amalgam/rpc/detail/bound_target.hpp>
#include <amalgam/rpc/detail/outgoing_values.hpp>
#include <amalgam/rpc/stream_reader.hpp>
#include <amalgam/rpc/stream_writer.hpp>
#include <amalgam/rpc/streamed.hpp>
#include <amalgam/tasks/future.hpp>

namespace amalgam {

namespace detail {

/// A call behind a future whose handler reads `values`.
template <typename R>
class sending_call final : public future_call<R>, private cancelable_call {
public:
    sending_call(const call_target& target, values_reference values)
        : future_call<R>(target), values_(std::move(values)) {
        values_->belongs_to(*this);
    }

private:
    void over() noexcept override {
        values_->call_over();
        future_call<R>::over();
    }
    // By way of the values, where the first of the future and the stream to cancel wins.
    void abandoned() noexcept override { values_->cancel(); }
    void keep() noexcept override { this->add_reference(); }
    void cancel_kept() noexcept override { this->request_cancel(); }
    values_reference values_;
};

/// The sending half of client_stream and duplex_stream.
template <typename T>
class value_sender {
public:
    using sent_type = T;

    /// Sends the next value, of any size. Parks until the handler reads, has granted credit, and
    /// the value has left; a value larger than the eager limit until the handler has fetched it, so
    /// such values go one at a time.
    /// Returns: false, and nothing is sent: the handler reads no more, since it has returned or the
    ///          call has failed. The outcome of the call says which.
    /// Failure: throws error{invalid} after finish(), and if moved from; error{closed} in a child
    ///          of fork(); error{canceled} if its ULT is canceled: the stream goes on if the value
    ///          had not left yet. Exceptions from serializing the value surface, and another may
    ///          be sent.
    bool send(const T& value) {
        if (!values().wanted()) return false;
        try {
            stream_writer<T> out(*values_);
            out(value);
        } catch (const detail::values_unwanted&) {
            return false;
        }
        return true;
    }
    /// No more values follow: the handler's reader ends after those sent. Does not wait. Without
    /// effect the second time.
    void finish() noexcept {
        if (values_) values_->finish();
    }

protected:
    explicit value_sender(values_reference values) noexcept : values_(std::move(values)) {}
    value_sender(value_sender&&) noexcept = default;
    value_sender& operator=(value_sender&& other) noexcept {
        values_reference moved(std::move(other.values_));
        if (values_) values_->leave();
        values_ = std::move(moved);
        return *this;
    }
    ~value_sender() {
        if (values_) values_->leave();
    }

    /// Not by way of the future, which get() moves meanwhile.
    void cancel_call() noexcept {
        if (values_) values_->cancel();
    }

private:
    outgoing_values& values() const {
        if (!values_) refuse_empty_outgoing();
        return *values_;
    }

    values_reference values_;
};

}  // namespace detail

/// A call whose handler reads a stream of values, and answers once:
///
///     auto up = client.procedure<int(streaming<int>, int)>("sum").on(peer).open(100);
///     for (int each : all) up.send(each);
///     int sum = up.get();
///
/// Owner:   one end of a call. Destroying it before get() cancels the call. May outlive the engine.
/// Threads: one at a time, any ULT or thread; cancel() may be called from any, at any time.
/// Failure: get() throws what calls throw, send() what it says.
/// Cost:    a few allocations per call, and one more round trip than a call before the first value
///          leaves; per value, those of a streamed value.
template <typename T, typename R>
class [[nodiscard]] client_stream : public detail::value_sender<T> {
public:
    client_stream(detail::values_reference values, future<R> result) noexcept
        : detail::value_sender<T>(std::move(values)), result_(std::move(result)) {}
    client_stream(client_stream&&) noexcept = default;
    /// The call that it had ends as if destroyed.
    client_stream& operator=(client_stream&& other) noexcept {
        result_ = std::move(other.result_);
        detail::value_sender<T>::operator=(std::move(other));
        return *this;
    }

    /// Finishes, and parks until the handler has answered. Once.
    R get() {
        this->finish();
        return result_.get();
    }
    /// The result, to wait for it with others or for some time; after finish().
    future<R>& result() noexcept { return result_; }
    /// Ends the call as canceled; the handler's next wait ends, and a send() that waits.
    void cancel() noexcept { this->cancel_call(); }

private:
    future<R> result_;
};

/// A call whose handler reads a stream of `T` and answers with a stream of `U`, both at their own
/// pace:
///
///     auto both = client.procedure<streamed<int>(streaming<int>)>("double").on(peer).open();
///     both.send(21);
///     int more = *both.next();
///     both.finish();
///
/// A handler that answers each value as it comes needs a caller that reads as it sends, or in
/// another ULT: when both windows are full, both ends wait.
/// Owner:   one end of a call. Destroying it before the last value was read cancels the call. May
///          outlive the engine.
/// Threads: one sends while another reads; cancel() may be called from any, at any time.
/// Failure: next() as streamed::next(), send() as it says.
/// Cost:    those of client_stream and streamed.
template <typename T, typename U>
class [[nodiscard]] duplex_stream : public detail::value_sender<T> {
public:
    using value_type = U;

    duplex_stream(detail::values_reference values, streamed<U> answers) noexcept
        : detail::value_sender<T>(std::move(values)), answers_(std::move(answers)) {}
    duplex_stream(duplex_stream&&) noexcept = default;
    /// The call that it had ends as if destroyed.
    duplex_stream& operator=(duplex_stream&& other) noexcept {
        answers_ = std::move(other.answers_);
        detail::value_sender<T>::operator=(std::move(other));
        return *this;
    }

    /// Parks until the handler has sent a value; empty after its last.
    std::optional<U> next() { return answers_.next(); }
    /// Ends the call as canceled: next() throws error{canceled} after the values that arrived.
    void cancel() noexcept { answers_.cancel(); }

    /// Single pass: reads values as it goes.
    using iterator = next_iterator<duplex_stream, U>;
    iterator begin() { return iterator(*this); }
    std::default_sentinel_t end() const noexcept { return {}; }

private:
    streamed<U> answers_;
};

/// A procedure at one peer whose handler reads a stream.
template <typename R, typename T, typename... A>
class bound_procedure<R(streaming<T>, A...)>
    : public detail::bound_target<bound_procedure<R(streaming<T>, A...)>> {
    using base = detail::bound_target<bound_procedure<R(streaming<T>, A...)>>;
    using base::target_;
    using result_type = typename detail::checked_result<R>::type;

public:
    using base::base;

    /// Starts the call; waits like bound_procedure::start(). The values are sent afterwards, the
    /// other arguments now.
    client_stream<T, result_type> open(detail::argument_t<A>... arguments) const {
        detail::values_reference values =
            detail::open_values(*target_.core, *target_.what, target_.context);
        auto call = std::make_unique<detail::sending_call<result_type>>(target_, values.another());
        call->write(streaming<T>{values->id()}, arguments...);
        values->publish();  // Nothing below throws.
        future<result_type> later = call.release()->launch();
        return {std::move(values), std::move(later)};
    }
};

/// A procedure at one peer whose handler reads a stream and answers with one.
template <typename U, typename T, typename... A>
class bound_procedure<streamed<U>(streaming<T>, A...)>
    : public detail::bound_stream_target<bound_procedure<streamed<U>(streaming<T>, A...)>> {
    using base = detail::bound_stream_target<bound_procedure<streamed<U>(streaming<T>, A...)>>;
    using base::target_;

public:
    using base::base;

    /// Starts the call; waits like bound_procedure::start().
    duplex_stream<T, U> open(detail::argument_t<A>... arguments) const {
        detail::values_reference values =
            detail::open_values(*target_.core, *target_.what, target_.context);
        auto call = std::make_unique<detail::typed_stream_call<U>>(target_);
        call->write(streaming<T>{values->id()}, arguments...);
        call->send_along(values.another());
        values->publish();  // Nothing below throws.
        auto* const begun = call.release();
        begun->launch();
        return {std::move(values), streamed<U>(*begun)};
    }
};

}  // namespace amalgam
