#include "inject/target/judge.hpp"

#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/absolute_path.hpp>
#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/inject/image_manifest.hpp>

#include "inject/image/contents.hpp"

namespace amalgam::detail {

namespace {

bool contains(const std::vector<std::string>& those, std::string_view what) {
    return std::find(those.begin(), those.end(), what) != those.end();
}

/// Whether what its manifest says counts: anybody may write one.
bool trusts_signer(const injection_policy& allows, const code_image& image) {
    const auto signer = image.signer();
    return signer &&
           std::find(allows.trusted.begin(), allows.trusted.end(), *signer) != allows.trusted.end();
}

error refusal(const code_image& image, std::string_view why) {
    return {errc::denied, fmt::format("the image {} may not run here: {}", image.name(), why)};
}

std::shared_ptr<const image_revocations> revocations_in(const std::string& path) {
    if (path.empty()) return std::make_shared<const image_revocations>();
    auto read = image_revocations::load(path);
    if (!read)
        throw error(read.code(),
                    fmt::format("{}; amalgam inject revoke makes one, and an empty file revokes "
                                "nothing",
                                read.sentence()));
    return std::make_shared<const image_revocations>(std::move(*read));
}

}  // namespace

image_judge::image_judge(const injection_options& options)
    : options_(options), versions_(options.versions) {
    replace(options.allows);
}

image_judge::rules image_judge::now() const {
    const std::lock_guard one(lock_);
    return now_;
}

bool image_judge::has_list() const {
    return !now().allows->revoked.empty();
}

void image_judge::replace(injection_policy allows) {
    allows.revoked = absolute_path(allows.revoked).value();
    reread_files list;
    list.begin({file_stamp::of(allows.revoked)});
    rules fresh{nullptr, revocations_in(allows.revoked)};
    fresh.allows = std::make_shared<const injection_policy>(std::move(allows));
    list.were_read();
    const std::lock_guard one(lock_);
    now_ = std::move(fresh);
    list_ = std::move(list);
}

result<bool> image_judge::reload() {
    std::unique_lock known(lock_);
    const auto allows = now_.allows;
    reread_files list = list_;
    known.unlock();
    if (allows->revoked.empty()) return false;
    list.begin({file_stamp::of(allows->revoked)});
    std::shared_ptr<const image_revocations> fresh;
    try {
        fresh = revocations_in(allows->revoked);
    } catch (const error& why) {
        const std::lock_guard one(lock_);
        if (now_.allows == allows) list_ = std::move(list);
        return {why.code().code, why.what()};
    }
    const std::lock_guard one(lock_);
    if (now_.allows != allows) return false;  // Replaced meanwhile, and read with that.
    list.were_read();
    list_ = std::move(list);
    const bool changed = fresh->keys != now_.revoked->keys || fresh->images != now_.revoked->images;
    now_.revoked = std::move(fresh);
    return changed;
}

bool image_judge::look_at_list() noexcept {
    try {
        bool is_new = false;
        {
            const std::lock_guard one(lock_);
            const std::string& path = now_.allows->revoked;
            if (path.empty()) return false;
            const reread_files::stamps there{file_stamp::of(path)};
            if (!list_.must_be_read(there)) return false;
            is_new = list_.have_changed(there);
        }
        const auto changed = reload();
        if (changed) return *changed;
        if (!is_new) return false;
        log(log_level::warn, "inject", "a revocation list cannot be used; the old one stays",
            {{"why", changed.sentence()}});
    } catch (const std::bad_alloc&) {
        // Looked at again in a second.
    }
    return false;
}

void image_judge::check(const rules& by, const code_image& image) const {
    const injection_policy& allows = *by.allows;
    const bool known = trusts_signer(allows, image);
    if (by.revoked->revokes(image)) throw refusal(image, "it, or its signer, is revoked here");
    if (!image.signer()) {
        if (!allows.unsigned_too) throw refusal(image, "it is not signed");
    } else if (known) {
        if (!image.verify()) throw refusal(image, "its signature is invalid");
        check_manifest(image);
    } else if (!allows.unsigned_too) {
        throw refusal(image, "its signer is not trusted here");
    }
    if (!allows.names.empty() && !contains(allows.names, image.name()))
        throw refusal(image, "its name is not among those that may run here");
    for (const std::string_view each : image.imports())
        if (contains(allows.denied_imports, each))
            throw refusal(image, fmt::format("it imports {}, which is denied here", each));
    if (!allows.check) return;
    try {
        allows.check(image);
    } catch (const error&) {
        throw;
    } catch (const std::exception& why) {
        throw refusal(image, text_of(why));
    } catch (...) {
        throw refusal(image,
                      "the target's own check threw an exception not derived from std::exception");
    }
}

std::chrono::system_clock::time_point image_judge::time_of_day() const {
    if (!options_.time_of_day) return std::chrono::system_clock::now();
    const auto failed = [](std::string_view why) {
        return error(errc::denied,
                     fmt::format("injection_options::time_of_day failed, so that nothing is known "
                                 "to be valid: {}",
                                 why));
    };
    try {
        return options_.time_of_day();
    } catch (const std::exception& why) {
        throw failed(text_of(why));
    } catch (...) {
        throw failed("it threw an exception not derived from std::exception");
    }
}

void image_judge::check_manifest(const code_image& image) const {
    const image_manifest& says = *image.manifest();
    const auto now = std::chrono::floor<std::chrono::seconds>(time_of_day());
    if (now < says.not_before)
        throw refusal(image, fmt::format("it is not valid before {}, but it is {} here",
                                         text_of_time(says.not_before), text_of_time(now)));
    if (says.not_after && now > *says.not_after)
        throw refusal(image, fmt::format("it has expired on {}, and it is {} here; sign it again",
                                         text_of_time(*says.not_after), text_of_time(now)));
    const std::uint64_t floor = versions_.of(image.name());
    if (says.version < floor)
        throw refusal(image, fmt::format("it is version {}, and version {} has been accepted here",
                                         says.version, floor));
    if (says.names.empty() && says.groups.empty()) return;
    if (options_.trust == nullptr)
        throw refusal(image, fmt::format("it is for {}, and this target has no name, expected "
                                         "credentials in injection_options::trust",
                                         audience_of(says)));
    const identity self = options_.trust->self();
    if (!allow_list{says.names, says.groups, {}}.allows(self))
        throw refusal(image, fmt::format("it is for {}, and this target is {}", audience_of(says),
                                         to_text(self)));
}

bool image_judge::remember(const rules& by, const code_image& image) {
    return trusts_signer(*by.allows, image) &&
           versions_.raise(image.name(), image.manifest()->version);
}

void image_judge::check_caller(const injection_policy& allows, std::string_view name,
                               const identity* who) {
    const auto check = [&](const allow_list& list) {
        if (who == nullptr)
            throw error(errc::denied,
                        "code from a ring comes from nobody known, and this target "
                        "allows only some to run code; send it by a call");
        if (list.allows(*who)) return;
        throw error(errc::denied,
                    fmt::format("this target does not allow {} to run {}; its operator can add the "
                                "name, a group or the uid to its policy",
                                to_text(*who), name.empty() ? "code" : name));
    };
    if (allows.callers) check(*allows.callers);
    for (const auto& [of, list] : allows.callers_of)
        if (of == name) check(list);
}

}  // namespace amalgam::detail
