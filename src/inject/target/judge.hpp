#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/file_stamp.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/fabric/identity.hpp>
#include <amalgam/inject/image_revocations.hpp>
#include <amalgam/inject/injection_target.hpp>

#include "inject/target/version_floors.hpp"

namespace amalgam::detail {

/// Decides which images may run at a target, and for whom.
///
/// Threads: any.
class image_judge {
public:
    /// What is in force at one moment.
    struct rules {
        std::shared_ptr<const injection_policy> allows;
        std::shared_ptr<const image_revocations> revoked;
    };

    /// `options` must outlive it. Failure: as injection_target's constructor.
    explicit image_judge(const injection_options& options);

    rules now() const;
    /// Failure: throws what reading the revocation list does; then nothing changes.
    void replace(injection_policy allows);
    /// Reads the revocation list again. True: it has changed. Failure: nothing changes.
    result<bool> reload();
    /// The same if its file has changed since, or could not be read then; what is wrong with it is
    /// logged, once a change.
    bool look_at_list() noexcept;
    bool has_list() const;
    /// What manifests are judged by. Failure: throws error{denied} if the user's function throws.
    std::chrono::system_clock::time_point time_of_day() const;

    /// Failure: throws error{denied} if that image may not run here.
    void check(const rules& by, const code_image& image) const;
    /// After check(): remembers its version. True: lower ones of its name may not run any more.
    /// Failure: throws error{denied}.
    bool remember(const rules& by, const code_image& image);
    /// Whether a caller must be known for any image.
    static bool asks_who_calls(const injection_policy& allows) noexcept {
        return allows.callers || !allows.callers_of.empty();
    }
    /// `name`: of the image; empty: not known yet. `who`: null if nobody knows who calls.
    /// Failure: throws error{denied}.
    static void check_caller(const injection_policy& allows, std::string_view name,
                             const identity* who);

private:
    void check_manifest(const code_image& image) const;

    const injection_options& options_;
    version_floors versions_;
    mutable std::mutex lock_;
    rules now_;
    reread_files list_;
};

}  // namespace amalgam::detail
