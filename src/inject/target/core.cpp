#include "inject/target/core.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/rpc/extension/inside.hpp>

#include "inject/image/contents.hpp"
#include "inject/link/library_symbols.hpp"

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
                self->check_serves();
                return self->run(which, payload.bytes);
            },
            how);
    });
    on_.define(
        library_name{at_target::run_code_name},
        [self](const_bytes code, const rest_of_message& payload) {
            self->check_serves();
            return self->run_code(code, payload.bytes);
        },
        how);
    const bool quick = options_.run == handler::inline_;
    on_.define(
        library_name{at_target::post_name},
        [self, quick](image_id which, const rest_of_message& payload) {
            self->check_serves();
            quick ? self->run_inline(which, payload.bytes) : (void)self->run(which, payload.bytes);
        },
        how);
    on_.define(
        library_name{at_target::post_code_name},
        [self, quick](const_bytes code, const rest_of_message& payload) {
            self->check_serves();
            quick ? self->run_code_inline(code, payload.bytes)
                  : (void)self->run_code(code, payload.bytes);
        },
        how);
    // Attached memory means that the source waits.
    on_.define(library_name{at_target::run_attached_name},
               [self](image_id which, const_bytes code, const std::vector<amalgam::bulk>& attached,
                      const rest_of_message& payload) {
                   self->check_serves();
                   return self->run_attached(which, code, attached, payload.bytes);
               });
    on_.define(library_name{at_target::bring_name}, [self](const_bytes code) {
        self->check_serves();
        return self->bring(code);
    });
}

void target_core::stop() noexcept {
    ended_.store(true, std::memory_order_relaxed);
    const served_name own[] = {{at_target::run_name},          {at_target::post_name},
                               {at_target::run_code_name},     {at_target::post_code_name},
                               {at_target::run_attached_name}, {at_target::bring_name}};
    end_serving(on_.core(), own);
}

/// Calls may still begin for a while if stop() could not wait.
void target_core::check_serves() const {
    if (ended_.load(std::memory_order_relaxed))
        throw error(errc::not_found, "the injection target has ended");
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
