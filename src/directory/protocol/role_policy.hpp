#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <amalgam/core/counter.hpp>
#include <amalgam/directory/attributes.hpp>
#include <amalgam/directory/directory_roles.hpp>
#include <amalgam/rpc/engine.hpp>

namespace amalgam::detail {

/// What a caller must be to call a procedure of a directory; each includes those before it.
enum class directory_role : std::uint8_t { anyone, reader, context, member };

/// Throws error{invalid} if AMALGAM_SECRET_FILE is set: directories had a shared secret once, and
/// whoever asks for it must not get a directory that is open.
void refuse_secret();

/// Who may call the procedures of a directory or context, and until when.
///
/// Owner:   shared with the handlers that run.
/// Threads: any.
class role_policy {
public:
    /// `what`: "directory" or "context", for sentences.
    /// Failure: throws error{invalid} if directory_roles::owners_of names no attribute.
    role_policy(engine& on, std::string_view what, const directory_roles& roles = {});

    /// For procedure_options::allow. Empty: whoever reaches the engine.
    const std::optional<allow_list>& list_of(directory_role which) const noexcept {
        return lists_[static_cast<std::size_t>(which)];
    }
    /// Whether the caller of the call being served has that role.
    bool caller_is(directory_role which) const;
    /// The caller of the call being served may have resources with these attributes.
    /// Failure: throws error{denied}, and counts it as "directory.refused".
    void check_owner_of(const attribute_view& what) const {
        if (!owners_of_.empty()) [[unlikely]]
            check_owner_of_each(what);
    }
    /// That peer has that role. May ping it, to learn who it is.
    /// Failure: throws error{denied}, and counts it as "directory.refused".
    void check_is(directory_role which, const peer& there, std::chrono::nanoseconds within) const;
    /// That peer is who signed something. Nothing is checked if nobody signed it, or if the peer
    /// proves no certificate. May ping it, as check_is().
    /// Failure: throws error{denied}, and counts it as "directory.refused".
    void check_signed(const identity& by, const peer& there, std::chrono::nanoseconds within) const;

    /// From here on check_open() refuses everybody.
    void end() noexcept { ended_.store(true, std::memory_order_relaxed); }
    /// Failure: throws error{not_found} after end().
    void check_open() const {
        if (ended_.load(std::memory_order_relaxed)) [[unlikely]]
            throw_ended();
    }

private:
    void check_owner_of_each(const attribute_view& what) const;
    identity who_is(const peer& there, std::chrono::nanoseconds within) const;
    [[noreturn]] void throw_ended() const;

    engine& on_;
    const std::string_view what_;         // A literal.
    std::optional<allow_list> lists_[4];  // None of `anyone`.
    const std::vector<attribute_owners> owners_of_;
    counter& refused_;
    std::atomic<bool> ended_{false};
};

}  // namespace amalgam::detail
