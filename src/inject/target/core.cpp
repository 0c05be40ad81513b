#include "inject/target/core.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/core/limited_log.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/inject/image_manifest.hpp>
#include <amalgam/rpc/extension/inside.hpp>
#include <amalgam/rpc/metrics.hpp>

#include "inject/image/contents.hpp"
#include "inject/limits.hpp"
#include "inject/link/library_symbols.hpp"

namespace amalgam::detail {

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
      judge_(options_),
      onward_(on),
      fetch_(on.procedure<at_source::fetch>(at_source::fetch_name)),
      post_here_(on.procedure<at_target::post>(at_target::post_name)),
      linked_count_(on.counters().get("inject.linked")),
      refused_(on.counters().get("inject.refused")),
      runs_watch_(on.counters().expose("inject.runs", [this] { return runs(); })),
      waiting_(std::make_shared<waiting_messages>(options_.max_waiting_messages,
                                                  options_.max_waiting_bytes)),
      confined_places_(std::max<std::size_t>(1, options_.confined.at_once)),
      watch_(on.stream(), *this),
      numbers_(metrics_of(on).add({"amalgam_inject_images", "Images linked now."}, {},
                                  [this] { return static_cast<double>(images()); })) {
    if (image_judge::asks_who_calls(*judge_.now().allows)) door_ = asks;
}

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
                return self->served([&] { return self->run(which, payload.bytes); });
            },
            how);
    });
    on_.define(
        library_name{at_target::run_code_name},
        [self](const_bytes code, const rest_of_message& payload) {
            return self->served([&] { return self->run_code(code, payload.bytes); });
        },
        how);
    const bool quick = options_.run == handler::inline_;
    on_.define(
        library_name{at_target::post_name},
        [self, quick](image_id which, const rest_of_message& payload) {
            if (self->refuses_quickly()) [[unlikely]]
                return;
            quick ? self->run_inline(which, payload.bytes) : (void)self->run(which, payload.bytes);
        },
        how);
    on_.define(
        library_name{at_target::post_code_name},
        [self, quick](const_bytes code, const rest_of_message& payload) {
            if (self->refuses_quickly()) [[unlikely]]
                return;
            quick ? self->run_code_inline(code, payload.bytes)
                  : (void)self->run_code(code, payload.bytes);
        },
        how);
    // Attached memory means that the source waits.
    on_.define(library_name{at_target::run_attached_name},
               [self](image_id which, const_bytes code, const std::vector<amalgam::bulk>& attached,
                      const rest_of_message& payload) {
                   return self->served(
                       [&] { return self->run_attached(which, code, attached, payload.bytes); });
               });
    on_.define(library_name{at_target::bring_name}, [self](const_bytes code) {
        return self->served([&] { return self->bring(code); });
    });
    watch();
}

void target_core::stop() noexcept {
    {
        const std::lock_guard one(lock_);
        door_.fetch_or(ended, std::memory_order_relaxed);
    }
    watch_.cancel();
    const served_name own[] = {{at_target::run_name},          {at_target::post_name},
                               {at_target::run_code_name},     {at_target::post_code_name},
                               {at_target::run_attached_name}, {at_target::bring_name}};
    end_serving(on_.core(), own);
}

/// Calls may still begin for a while if stop() could not wait.
[[gnu::noinline]] std::optional<run_answer> target_core::refuses() {
    if ((door_.load(std::memory_order_relaxed) & ended) != 0)
        throw error(errc::not_found, "the injection target has ended");
    try {
        check_caller({&call_context::current()}, {});
        return std::nullopt;
    } catch (const error& why) {
        return refuse(why);
    }
}

void target_core::check_caller(const caller& by, std::string_view image) const {
    if (by.is_self || (by.call != nullptr && by.call->from().is_self())) return;
    const auto allows = judge_.now().allows;
    if (by.call == nullptr) return image_judge::check_caller(*allows, image, by.who);
    const identity who = by.call->who();
    image_judge::check_caller(*allows, image, &who);
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

std::uint64_t target_core::policy_number() const {
    const std::lock_guard one(lock_);
    return policies_;
}

void target_core::set_policy(injection_policy allows) {
    {
        const std::lock_guard one(changes_);
        const bool list = image_judge::asks_who_calls(allows);
        judge_.replace(std::move(allows));
        if (list)
            door_.fetch_or(asks, std::memory_order_relaxed);
        else
            door_.fetch_and(static_cast<std::uint8_t>(~asks), std::memory_order_relaxed);
    }
    watch();
    judge_again();
}

result<void> target_core::reload() {
    if (const auto read = judge_.reload(); !read) return read.why();
    judge_again();
    return {};
}

void target_core::judge_again(std::string_view only) try {
    std::vector<ready> known, ended_ones;  // Destroyed unlocked: destruction runs their code.
    {
        const std::lock_guard one(lock_);
        ++policies_;
        for (const auto& [id, each] : images_)
            if (only.empty() || each.image->linked.image().name() == only)
                known.push_back(each.image);
        ended_ones.push_back(std::exchange(latest_of_code_, nullptr));
        latest_code_.clear();
    }
    const image_judge::rules now = judge_.now();
    for (const ready& each : known) {
        const code_image& image = each->linked.image();
        try {
            judge_.check(now, image);
        } catch (const std::exception& why) {
            log(log_level::info, "inject", "an image may not run any more", {{"why", why.what()}});
            const std::lock_guard one(lock_);
            const auto at = images_.find(id_of(image));
            if (at == images_.end() || at->second.image != each) continue;
            by_use_.erase(at->second.place);
            images_.erase(at);
        }
    }
    forgotten_.fetch_add(1, std::memory_order_release);
} catch (...) {
    // Out of memory. What could not be judged may be what was revoked; sources bring the rest
    // again.
    forget_all();
    throw;
}

void target_core::forget_all() noexcept {
    std::unordered_map<image_id, kept> all;  // Destroyed unlocked: destruction runs their code.
    ready latest;
    {
        const std::lock_guard one(lock_);
        ++policies_;
        all.swap(images_);
        by_use_.clear();
        latest = std::exchange(latest_of_code_, nullptr);
        latest_code_.clear();
    }
    forgotten_.fetch_add(1, std::memory_order_release);
}

target_core::watch_timer::watch_timer(execution_stream& where, target_core& whose) noexcept
    : timer(where,
            [](timer& self) noexcept {
                // Not here: it reads files, and ends images.
                target_core& core = static_cast<watch_timer&>(self).of;
                try {
                    amalgam::post(core.on_.pool(), [weak = core.weak_from_this()] {
                        if (const auto there = weak.lock()) there->look();
                    });
                } catch (const std::exception&) {
                    core.watch();  // Out of memory: in a second, again.
                }
            }),
      of(whose) {}

void target_core::watch() {
    const bool has_list = judge_.has_list();
    const std::lock_guard one(lock_);
    if ((door_.load(std::memory_order_relaxed) & ended) == 0 && (has_list || next_end_))
        watch_.arm(on_.stream().now() + limits::policy_interval);
}

void target_core::watch_for(const code_image& image) {
    const image_manifest* const says = image.manifest();
    if (says == nullptr || !says->not_after) return;
    {
        const std::lock_guard one(lock_);
        if (next_end_ && *next_end_ <= *says->not_after) return;
        next_end_ = says->not_after;
    }
    watch();
}

void target_core::look() noexcept {
    try {
        const auto now = std::chrono::floor<std::chrono::seconds>(judge_.time_of_day());
        bool expired = false;
        {
            const std::lock_guard one(lock_);
            expired = next_end_ && now > *next_end_;
        }
        if (judge_.look_at_list() || expired) judge_again();
        if (expired) {
            const std::lock_guard one(lock_);
            next_end_.reset();
            for (const auto& [id, each] : images_) {
                const image_manifest* const says = each.image->linked.image().manifest();
                if (says == nullptr || !says->not_after || *says->not_after < now) continue;
                next_end_ = std::min(next_end_.value_or(*says->not_after), *says->not_after);
            }
        }
    } catch (const std::exception& why) {
        limited_log(log_level::warn, "inject", "images could not be judged again",
                    {{"why", why.what()}});
    }
    watch();
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

target_core::ready target_core::take(const_bytes code, const caller& by,
                                     std::optional<image_id> which) {
    if (code.size() > options_.max_image_bytes)
        throw error(errc::too_large,
                    fmt::format("an image has {} bytes, expected at most {} for this target",
                                code.size(), options_.max_image_bytes));
    auto image = code_image::parse({code.begin(), code.end()});
    if (!image) throw error(image.code(), image.sentence());
    if (which && id_of(*image) != *which)
        throw error(errc::mismatch, "its source sent another image than the one requested");
    if (asks_who_calls()) check_caller(by, image->name());  // Linking runs its static objects.
    ready made;
    for (;;) {
        const std::uint64_t number = policy_number();  // Before the rules, which are not older.
        const image_judge::rules rules = judge_.now();
        judge_.check(rules, *image);  // Also for known images: the policy may have changed.
        if (auto known = find(id_of(*image))) {
            const code_image& there = known->linked.image();
            if (!std::ranges::equal(there.bytes(), image->bytes()))
                throw error(errc::mismatch,
                            fmt::format("the images {} and {} have the same number by chance; "
                                        "change one of them in any way and build it again",
                                        image->name(), there.name()));
            watch_for(*image);
            return known;
        }
        if (made == nullptr) {
            made = link(*image);
            linked_count_.add();
        }
        if (judge_.remember(rules, *image)) {
            judge_again(image->name());
            continue;
        }
        if (ready loaded = keep(made, number)) {
            watch_for(*image);
            return loaded;
        }
    }
}

target_core::ready target_core::keep(const ready& made, std::uint64_t checked_by) {
    const image_id id = id_of(made->linked.image());
    std::vector<ready> out;  // Destroyed outside the lock: destruction runs their code.
    std::list<image_id> place{id};
    const std::lock_guard one(lock_);
    if (policies_ != checked_by) return nullptr;
    const auto [at, fresh] = images_.try_emplace(id, kept{made, place.begin()});
    if (!fresh) return at->second.image;
    by_use_.splice(by_use_.end(), place);
    while (images_.size() > std::max<std::size_t>(1, options_.max_images)) {
        const auto least = images_.find(by_use_.front());
        out.push_back(std::move(least->second.image));
        images_.erase(least);
        by_use_.pop_front();
        forgotten_.fetch_add(1, std::memory_order_release);
    }
    return made;
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

result<void> injection_target::reload() {
    return core_->reload();
}

std::size_t injection_target::images() const {
    return core_->images();
}

std::uint64_t injection_target::runs() const {
    return core_->runs();
}

}  // namespace amalgam
