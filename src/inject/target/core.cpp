#include "inject/target/core.hpp"

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

#include "inject/image/contents.hpp"
#include "inject/limits.hpp"
#include "inject/link/library_symbols.hpp"
#include "inject/protocol/payload_memory.hpp"
#include "inject/protocol/report_failure.hpp"
#include "inject/run/confined_run.hpp"
#include "inject/run/running_code.hpp"

namespace amalgam::detail {

namespace {

bool contains(const std::vector<std::string>& those, std::string_view what) {
    return std::find(those.begin(), those.end(), what) != those.end();
}

/// Throws error{denied} if that image may not run.
void check(const injection_policy& allows, const code_image& image) {
    const auto refuse = [&](const std::string& why) {
        return error(errc::denied,
                     fmt::format("the image {} may not run here: {}", image.name(), why));
    };
    if (const auto signer = image.signer()) {
        const bool known = std::find(allows.trusted.begin(), allows.trusted.end(), *signer) !=
                           allows.trusted.end();
        if (!known && !allows.unsigned_too) throw refuse("its signer is not trusted here");
        if (known && !image.verify()) throw refuse("its signature is invalid");
    } else if (!allows.unsigned_too) {
        throw refuse("it is not signed");
    }
    if (!allows.names.empty() && !contains(allows.names, image.name()))
        throw refuse("its name is not among those that may run here");
    for (const std::string_view each : image.imports())
        if (contains(allows.denied_imports, each))
            throw refuse(fmt::format("it imports {}, which is denied here", each));
    if (!allows.check) return;
    try {
        allows.check(image);
    } catch (const error&) {
        throw;
    } catch (const std::exception& why) {
        throw refuse(text_of(why));
    } catch (...) {
        throw refuse("the target's own check threw an exception not derived from std::exception");
    }
}

/// An exception's text, of bounded length.
std::string reason(const char* why) {
    return {why, ::strnlen(why, limits::max_reason_bytes)};
}

}  // namespace

target_core::ready_image::ready_image(const code_image& image, const image_symbols& symbols)
    : linked(image, symbols, linked_image::not_started()),
      main(reinterpret_cast<entry>(linked.find(fmt::format("{}_main", image.name())))),
      alignment(image.payload_alignment()) {
    if (main == nullptr)
        throw error(errc::invalid, fmt::format("the image {0} has no {0}_main", image.name()));
}

target_core::target_core(engine& on, injection_options options)
    : on_(on),
      options_(std::move(options)),
      onward_(on),
      fetch_(on.procedure<at_source::fetch>(at_source::fetch_name)),
      post_here_(on.procedure<at_target::post>(at_target::post_name)),
      linked_count_(on.counters().get("inject.linked")),
      refused_(on.counters().get("inject.refused")),
      runs_watch_(on.counters().expose("inject.runs", [this] { return runs(); })),
      allows_(std::make_shared<const injection_policy>(options_.allows)),
      waiting_(std::make_shared<waiting_messages>(options_.max_waiting_messages,
                                                  options_.max_waiting_bytes)),
      confined_places_(std::max<std::size_t>(1, options_.confined.at_once)) {}

void target_core::start() {
    if (options_.confined.on && options_.run == handler::inline_)
        throw error(errc::invalid,
                    "confined code cannot run inline, because the target waits for it; leave "
                    "injection_options::run as handler::ult");
    const auto self = shared_from_this();
    const procedure_options how{.run = options_.run};
    define_first(on_.core(), at_target::run_name, "an injection_target", [&] {
        on_.define(
            library_name{at_target::run_name},
            [self](image_id which, const rest_of_message& payload) {
                return self->run(which, payload.bytes);
            },
            how);
    });
    on_.define(
        library_name{at_target::run_code_name},
        [self](const_bytes code, const rest_of_message& payload) {
            return self->run_code(code, payload.bytes);
        },
        how);
    const bool quick = options_.run == handler::inline_;
    on_.define(
        library_name{at_target::post_name},
        [self, quick](image_id which, const rest_of_message& payload) {
            quick ? self->run_inline(which, payload.bytes) : (void)self->run(which, payload.bytes);
        },
        how);
    on_.define(
        library_name{at_target::post_code_name},
        [self, quick](const_bytes code, const rest_of_message& payload) {
            quick ? self->run_code_inline(code, payload.bytes)
                  : (void)self->run_code(code, payload.bytes);
        },
        how);
    // Attached memory means that the source waits.
    on_.define(library_name{at_target::run_attached_name},
               [self](image_id which, const_bytes code, const std::vector<amalgam::bulk>& attached,
                      const rest_of_message& payload) {
                   return self->run_attached(which, code, attached, payload.bytes);
               });
    on_.define(library_name{at_target::bring_name},
               [self](const_bytes code) { return self->bring(code); });
}

void target_core::stop() noexcept {
    for (const std::string_view each :
         {at_target::run_name, at_target::post_name, at_target::run_code_name,
          at_target::post_code_name, at_target::run_attached_name, at_target::bring_name})
        on_.undefine(library_name{each});
}

std::size_t target_core::images() const {
    const std::lock_guard one(lock_);
    return images_.size();
}

target_core::ready target_core::find(image_id which) {
    const std::lock_guard one(lock_);
    const auto at = images_.find(which);
    if (at == images_.end()) return nullptr;
    by_use_.splice(by_use_.end(), by_use_, at->second.place);
    return at->second.image;
}

void* target_core::symbol(std::string_view name) const {
    if (void* const found = library_symbol(name)) return found;
    const auto at = options_.exports.find(name);
    return at != options_.exports.end() ? at->second : runtime_symbol(name);
}

target_core::policy_now target_core::policy() const {
    const std::lock_guard one(lock_);
    return {allows_, policies_};
}

void target_core::set_policy(injection_policy allows) {
    const auto fresh = std::make_shared<const injection_policy>(std::move(allows));
    std::vector<ready> known, ended;  // Destroyed outside the lock: destruction runs their code.
    {
        const std::lock_guard one(lock_);
        allows_ = fresh;
        ++policies_;
        for (const auto& [id, each] : images_)
            known.push_back(each.image);
        ended.push_back(std::exchange(latest_of_code_, nullptr));
        latest_code_.clear();
    }
    for (const ready& each : known) {
        try {
            check(*fresh, each->linked.image());
        } catch (const std::exception&) {
            const std::lock_guard one(lock_);
            const auto at = images_.find(id_of(each->linked.image()));
            if (at == images_.end() || at->second.image != each) continue;
            by_use_.erase(at->second.place);
            images_.erase(at);
        }
    }
    forgotten_.fetch_add(1, std::memory_order_release);
}

target_core::ready target_core::link(const code_image& image) {
    const auto failed = [&](std::string_view why) {
        return error(errc::handler_failed,
                     fmt::format("a static object of the image {} failed: {}", image.name(), why));
    };
    ready made;  // Outlives exceptions of its code.
    try {
        made = std::make_shared<ready_image>(
            image, [this](std::string_view name) { return symbol(name); });
        made->linked.kept_by(made);
        if (!options_.confined.on) made->linked.start();
        return made;
    } catch (const error&) {
        throw;
    } catch (const std::exception& why) {
        throw failed(text_of(why));
    } catch (...) {
        throw failed("it threw an exception not derived from std::exception");
    }
}

target_core::ready target_core::take(const_bytes code, std::optional<image_id> which) {
    if (code.size() > options_.max_image_bytes)
        throw error(errc::too_large,
                    fmt::format("an image has {} bytes, expected at most {} for this target",
                                code.size(), options_.max_image_bytes));
    auto image = code_image::parse({code.begin(), code.end()});
    if (!image) throw error(image.code(), image.sentence());
    if (which && id_of(*image) != *which)
        throw error(errc::mismatch, "its source sent another image than the one requested");
    for (;;) {
        const policy_now now = policy();
        check(*now.allows, *image);  // Also for known images: the policy may have changed.
        if (auto known = find(id_of(*image))) {
            const code_image& there = known->linked.image();
            if (std::ranges::equal(there.bytes(), image->bytes())) return known;
            throw error(errc::mismatch,
                        fmt::format("the images {} and {} have the same number by chance; change "
                                    "one of them in any way and build it again",
                                    image->name(), there.name()));
        }
        const ready made = link(*image);
        linked_count_.add();
        if (ready loaded = keep(made, now.number)) return loaded;
    }
}

target_core::ready target_core::keep(const ready& made, std::uint64_t checked_by) {
    const image_id id = id_of(made->linked.image());
    std::vector<ready> ended;  // Destroyed outside the lock: destruction runs their code.
    const std::lock_guard one(lock_);
    if (policies_ != checked_by) return nullptr;
    const auto [at, fresh] = images_.try_emplace(id);
    if (!fresh) return at->second.image;
    at->second = {made, by_use_.insert(by_use_.end(), id)};
    while (images_.size() > std::max<std::size_t>(1, options_.max_images)) {
        const auto least = images_.find(by_use_.front());
        ended.push_back(std::move(least->second.image));
        images_.erase(least);
        by_use_.pop_front();
        forgotten_.fetch_add(1, std::memory_order_release);
    }
    return made;
}

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
        last_inline_ = {forgotten, 0, take_again(code), {code.begin(), code.end()}};
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
        const auto place = std::make_shared<waiting_messages::place>(
            waiting_->enter(call_context::current().from(), which, payload.size()));
        amalgam::post(on_.pool(), [self = shared_from_this(), place, which,
                                   held = std::vector<std::byte>(payload.begin(), payload.end())] {
            try {
                (void)self->fetch(place->fetch());
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
            return run_now(take_again(code), payload, attached);
        } catch (const error& why) {
            return refuse(why);
        }
    }
    if (const ready known = find(which)) return run_now(known, payload, attached);
    if (!call_context::current().one_way()) return {errc::not_found, true, {}, {}};
    return fetch_and_run(which, payload, attached);
}

target_core::ready target_core::fetch(waiting_messages::image_fetch& what) {
    const std::lock_guard one_asks(what.asking);
    if (ready known = find(what.which)) return known;
    if (what.failed) throw error(*what.failed);
    try {
        const std::vector<std::byte> code =
            fetch_.on(what.from).within(limits::fetch_limit)(what.which);
        if (code.empty()) throw error(errc::not_found, "its source no longer has it");
        return take(code, what.which);
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
        known = fetch(place.fetch());
    } catch (const error& why) {
        return refuse(why);
    }
    return run_now(known, payload, attached);
}

target_core::ready target_core::take_again(const_bytes code) {
    {
        const std::lock_guard one(lock_);
        if (latest_of_code_ && code.size() == latest_code_.size() &&
            std::memcmp(code.data(), latest_code_.data(), code.size()) == 0)
            return latest_of_code_;
    }
    ready known = take(code);
    ready before;  // It may end here and run its code: not with the lock held.
    const std::lock_guard one(lock_);
    latest_code_.assign(code.begin(), code.end());
    before = std::exchange(latest_of_code_, known);
    return known;
}

run_answer target_core::run_code(const_bytes code, const_bytes payload) {
    ready known;
    try {
        known = take_again(code);
    } catch (const error& why) {
        return refuse(why);
    }
    return run_now(known, payload);
}

void target_core::run_polled(const_bytes code, const_bytes payload) {
    try {
        (void)run_now(take_again(code), payload, {}, nullptr);
    } catch (const error& why) {
        (void)refuse(why);
    }
}

run_answer target_core::bring(const_bytes code) {
    try {
        (void)take(code);
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

namespace amalgam {

injection_target::injection_target(engine& on, injection_options options)
    : core_(std::make_shared<detail::target_core>(on, std::move(options))) {
    core_->start();
}

injection_target::~injection_target() {
    core_->stop();
}

void injection_target::set_policy(injection_policy allows) {
    core_->set_policy(std::move(allows));
}

std::size_t injection_target::images() const {
    return core_->images();
}

std::uint64_t injection_target::runs() const {
    return core_->runs();
}

}  // namespace amalgam
