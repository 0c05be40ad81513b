#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include <amalgam/rpc/detail/answers.hpp>
#include <amalgam/rpc/extension/thrown.hpp>

namespace amalgam {

/// First parameter of a handler that answers by other means than returning:
///
///     server.define("store", [](responder<int> answer, std::string text) {
///         answer(text.size());    // the caller goes on
///         write_to_disk(text);    // and so does the handler
///     });
///
/// It may also be moved out and answered after the handler returned, by any code. The procedure's
/// result is `R`, as callers see it.
/// Owner:   one responder per call, movable. Destroying it unanswered fails the call.
/// Threads: any, one at a time.
/// Failure: answering twice throws error{invalid}. Exceptions from serializing the result do not
///          surface here: they become the answer, as `handler_failed`. Answers to callers that no
///          longer wait are dropped.
/// Cost:    one allocation per call.
template <typename R>
class responder {
public:
    explicit responder(detail::late_answer_base& to) noexcept : to_(&to) { to.add_reference(); }
    responder(responder&& other) noexcept : to_(std::exchange(other.to_, nullptr)) {}
    responder& operator=(responder&& other) noexcept {
        responder moved(std::move(other));
        std::swap(to_, moved.to_);
        return *this;
    }
    ~responder() {
        if (to_ == nullptr) return;
        if (!to_->handler_unwinds() && to_->claim()) {
            to_->send({errc::handler_failed},
                      "the handler destroyed its responder without answering");
        }
        to_->drop_reference();
    }

    /// Answers with the result.
    template <typename... Result>
    requires(std::is_void_v<R> ? sizeof...(Result) == 0 : sizeof...(Result) == 1) void operator()(
        const Result&... result) {
        claim();
        try {
            if constexpr (!std::is_void_v<R>) {
                const std::remove_cvref_t<R>& typed = (result, ...);
                to_->room().write(to_->core(), to_->about().from(), to_->values_as(), typed);
            }
        } catch (...) {
            const failure why = detail::thrown_there("serializing the result");
            return to_->send(why.what, why.sentence);
        }
        to_->send({});
    }
    /// Answers with a failure: the caller gets `handler_failed` with this message, and `code` from
    /// error::handler_code().
    void fail(errc code, std::string_view why) {
        claim();
        to_->send({errc::handler_failed, static_cast<std::int32_t>(code)}, why);
    }
    void fail(std::string_view why) { fail(errc::handler_failed, why); }

    /// The call: caller, deadline, and whether it was canceled. Valid until the answer.
    const call_context& call() const noexcept { return to_->about(); }

private:
    void claim() {
        if (to_ != nullptr && to_->claim()) return;
        throw error(errc::invalid, "this call has been answered already: answer each call once");
    }

    detail::late_answer_base* to_;
};

}  // namespace amalgam
