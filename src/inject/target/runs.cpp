// How images run: at once, inline, confined, and when they must be fetched first. See core.cpp.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/core/limited_log.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/rpc/extension/inside.hpp>

#include "inject/limits.hpp"
#include "inject/protocol/payload_memory.hpp"
#include "inject/protocol/report_failure.hpp"
#include "inject/run/confined_run.hpp"
#include "inject/run/running_code.hpp"
#include "inject/target/core.hpp"

namespace amalgam::detail {

namespace {

/// An exception's text, of bounded length.
std::string reason(const char* why) {
    return {why, ::strnlen(why, limits::max_reason_bytes)};
}

}  // namespace

void* target_core::target_args() const {
    return options_.target_args_of ? options_.target_args_of() : options_.target_args;
}

void target_core::run_main(ready_image& what, const_bytes payload, running_code& here,
                           call_context* call) {
    void* const target = target_args();
    void* none = nullptr;
    void*& place = call != nullptr ? call->kept_by_layer() : none;
    struct keeps {
        void*& slot;
        ~keeps() { slot = nullptr; }
    } const meanwhile{place};
    place = &here;
    if ((reinterpret_cast<std::uintptr_t>(payload.data()) & (what.alignment - 1)) == 0) {
        // The message's own memory, which the code may write to.
        what.main(const_cast<std::byte*>(payload.data()), payload.size(), target);
    } else {
        const payload_memory placed(payload.size(), what.alignment);
        std::copy(payload.begin(), payload.end(), placed.data);
        what.main(placed.data, placed.bytes, target);
    }
}

void target_core::log_failure(const ready_image& what, std::string_view why) const {
    log(log_level::info, "inject", "injected code failed",
        {{"image", what.linked.image().name()}, {"why", why}});
}

run_answer target_core::run_confined_now(ready_image& what, const_bytes payload, running_code& here,
                                         call_context* call) {
    const confinement_options& how = options_.confined;
    const auto time_left = [&] {
        if (call == nullptr || !call->deadline()) return std::chrono::nanoseconds::max();
        return std::chrono::nanoseconds(*call->deadline() - on_.now());
    };
    if (!confined_places_.try_acquire_for(time_left()))
        return {errc::overloaded,
                false,
                fmt::format("{} confined runs are active here, and none of them ended in time",
                            how.at_once),
                {}};
    struct gives_back {
        semaphore& places;
        ~gives_back() { places.release(); }
    } const afterwards{confined_places_};
    if (call != nullptr && call->canceled())
        return {errc::canceled, false, "it was canceled before it began", {}};
    void* const target = target_args();
    const auto work = [&](void* at, std::size_t bytes) {
        running_code::only_one = &here;
        what.linked.start();
        what.main(at, bytes, target);
        return const_bytes(here.result);
    };
    try {
        confined_end end =
            run_confined(work, payload, what.alignment,
                         {std::min(how.time, time_left()), how.result_bytes, how.memory_bytes});
        return {end.code, false, std::move(end.sentence), std::move(end.result)};
    } catch (const error& why) {
        return {why.code().code, false, why.what(), {}};
    }
}

run_answer target_core::run_now(const ready& what, const_bytes payload,
                                std::span<const amalgam::bulk> attached, call_context* call) {
    if (asks_who_calls()) [[unlikely]] {
        try {
            check_caller({call}, what->linked.image().name());
        } catch (const error& why) {
            return refuse(why);
        }
    }
    running_code here{what->linked, onward_, attached, options_.confined.on};
    runs_.add();
    run_answer answer;
    if (here.confined) {
        answer = run_confined_now(*what, payload, here, call);
    } else {
        report_failure([&] { run_main(*what, payload, here, call); },
                       [&](const char* why) {
                           answer = {errc::handler_failed, false, reason(why), {}};
                       });
        answer.result = std::move(here.result);
    }
    if (answer.code != errc::ok && (call == nullptr || call->one_way()))
        log_failure(*what, answer.sentence);
    return answer;
}

/// For inline handlers, which run one at a time: needs no lock, and one lookup at most.
void target_core::run_quickly(ready_image& what, const_bytes payload) {
    if (asks_who_calls()) [[unlikely]] {
        try {
            check_caller({&call_context::current()}, what.linked.image().name());
        } catch (const error& why) {
            return (void)refuse(why);
        }
    }
    running_code here{what.linked, onward_};
    inline_runs_.add();
    report_failure([&] { run_main(what, payload, here, &call_context::current()); },
                   [&](const char* why) { log_failure(what, reason(why)); });
}

void target_core::run_inline(image_id which, const_bytes payload) {
    const std::uint64_t forgotten = forgotten_.load(std::memory_order_acquire);
    if (!last_inline_.image || last_inline_.forgotten != forgotten || last_inline_.id != which) {
        last_inline_ = {forgotten, which, find(which)};
        if (!last_inline_.image) return fetch_and_run_later(which, payload);
    }
    run_quickly(*last_inline_.image, payload);
}

void target_core::run_code_inline(const_bytes code, const_bytes payload) {
    const std::uint64_t forgotten = forgotten_.load(std::memory_order_acquire);
    // take_again() keeps it, too, equally long.
    if (last_inline_.image && last_inline_.forgotten == forgotten &&
        code.size() == last_inline_.code.size() &&
        std::memcmp(code.data(), last_inline_.code.data(), code.size()) == 0)
        return run_quickly(*last_inline_.image, payload);
    try {
        last_inline_ = {
            forgotten, 0, take_again(code, {&call_context::current()}), {code.begin(), code.end()}};
    } catch (const error& why) {
        (void)refuse(why);
        return;
    }
    run_quickly(*last_inline_.image, payload);
}

run_answer target_core::run(image_id which, const_bytes payload) {
    if (const ready known = find(which)) return run_now(known, payload);
    if (!call_context::current().one_way()) return {errc::not_found, true, {}, {}};
    return fetch_and_run(which, payload, {});
}

/// An inline handler cannot wait for the code: a ULT does, as another call.
void target_core::fetch_and_run_later(image_id which, const_bytes payload) {
    try {
        const call_context& call = call_context::current();
        const auto place = std::make_shared<waiting_messages::place>(
            waiting_->enter(call.from(), which, payload.size()));
        amalgam::post(on_.pool(),
                      [self = shared_from_this(), place, which, is_self = call.from().is_self(),
                       who = asks_who_calls() ? call.who() : identity{},
                       held = std::vector<std::byte>(payload.begin(), payload.end())] {
                          try {
                              // The message that is posted here is this engine's own, so that its
                              // sender is judged before.
                              const caller sender{nullptr, &who, is_self};
                              const ready known = self->fetch(place->fetch(), sender);
                              if (self->asks_who_calls())
                                  self->check_caller(sender, known->linked.image().name());
                              self->post_here_.on(self_of(self->on_.core())).post(which, {held});
                          } catch (const error& why) {
                              (void)self->refuse(why);
                          } catch (const std::exception& why) {
                              (void)self->refuse(error(errc::handler_failed, text_of(why)));
                          }
                      });
    } catch (const error& why) {
        (void)refuse(why);
    }
}

run_answer target_core::run_attached(image_id which, const_bytes code,
                                     const std::vector<amalgam::bulk>& attached,
                                     const_bytes payload) {
    if (!code.empty()) {
        try {
            return run_now(take_again(code, {&call_context::current()}), payload, attached);
        } catch (const error& why) {
            return refuse(why);
        }
    }
    if (const ready known = find(which)) return run_now(known, payload, attached);
    if (!call_context::current().one_way()) return {errc::not_found, true, {}, {}};
    return fetch_and_run(which, payload, attached);
}

target_core::ready target_core::fetch(waiting_messages::image_fetch& what, const caller& by) {
    const std::lock_guard one_asks(what.asking);
    if (ready known = find(what.which)) return known;
    if (what.failed) throw error(*what.failed);
    try {
        const std::vector<std::byte> code =
            fetch_.on(what.from).within(limits::fetch_limit)(what.which);
        if (code.empty()) throw error(errc::not_found, "its source no longer has it");
        return take(code, by, what.which);
    } catch (const error& why) {
        what.failed.emplace(why);  // For all that wait for it, instead of each asking again.
        throw;
    }
}

run_answer target_core::fetch_and_run(image_id which, const_bytes payload,
                                      std::span<const amalgam::bulk> attached) {
    ready known;
    try {
        const auto place = waiting_->enter(call_context::current().from(), which, payload.size());
        known = fetch(place.fetch(), {&call_context::current()});
    } catch (const error& why) {
        return refuse(why);
    }
    return run_now(known, payload, attached);
}

target_core::ready target_core::take_again(const_bytes code, const caller& by) {
    std::uint64_t number;
    {
        const std::lock_guard one(lock_);
        number = policies_;
        if (latest_of_code_ && code.size() == latest_code_.size() &&
            std::memcmp(code.data(), latest_code_.data(), code.size()) == 0)
            return latest_of_code_;
    }
    ready known = take(code, by);
    ready before;  // It may end here and run its code: not with the lock held.
    const std::lock_guard one(lock_);
    if (policies_ != number) return known;  // All were judged again, and not this, if it came late.
    latest_code_.assign(code.begin(), code.end());
    before = std::exchange(latest_of_code_, known);
    return known;
}

run_answer target_core::run_code(const_bytes code, const_bytes payload) {
    ready known;
    try {
        known = take_again(code, {&call_context::current()});
    } catch (const error& why) {
        return refuse(why);
    }
    return run_now(known, payload);
}

void target_core::run_polled(const_bytes code, const_bytes payload) {
    try {
        (void)run_now(take_again(code, {}), payload, {}, nullptr);
    } catch (const error& why) {
        (void)refuse(why);
    }
}

run_answer target_core::bring(const_bytes code) {
    try {
        (void)take(code, {&call_context::current()});
        return {};
    } catch (const error& why) {
        return refuse(why);
    }
}

run_answer target_core::refuse(const error& why) {
    refused_.add();
    const call_context* const call = call_context::try_current();
    if (call == nullptr || call->one_way())
        limited_log(log_level::warn, "inject", "refused to run a message",
                    {{"why", reason(why.what())}});
    return {why.code().code, false, reason(why.what()), {}};
}

}  // namespace amalgam::detail
