#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace amalgam {

/// Why an operation ended. Travels on the wire: never renumber.
/// Grouped by what the caller can do.
enum class errc : std::uint8_t {
    ok = 0,
    // The same request may work later.
    timed_out = 1,    ///< The deadline passed first.
    overloaded = 2,   ///< A bounded queue at the far side is full.
    corrupt = 3,      ///< Bytes were damaged on the way: their checksum is wrong.
    unavailable = 4,  ///< A server that is stopping: not run there; try again, or elsewhere.
    // Look the peer up again.
    unreachable = 16,   ///< Nothing answers at that address.
    disconnected = 17,  ///< The peer was there and is gone.
    // Change the request.
    invalid = 32,      ///< The request makes no sense.
    not_found = 33,    ///< No such name, procedure, transport or resource.
    denied = 34,       ///< A key or right was refused; nothing was touched.
    mismatch = 35,     ///< The two sides disagree on a signature or version.
    unsupported = 36,  ///< This transport or build cannot do it.
    too_large = 37,    ///< Past a stated limit.
    in_use = 38,       ///< The address, name or number is taken.
    // Ended here.
    canceled = 48,
    no_memory = 49,
    handler_failed = 50,  ///< The handler threw: its code and text come with the error.
    closed = 51,          ///< The local object was closed or is stopping.
    internal = 52         ///< A broken promise of our own: report it.
};

/// The stable lower-case name of a code, as in logs: "timed_out".
/// A number no release knows gives "unknown".
std::string_view name(errc code) noexcept;

/// How an operation ended: a stable code, and the native one for logs only.
/// Trivially copyable, 8 bytes: completions and the wire carry it.
struct [[nodiscard]] status {
    errc code = errc::ok;
    /// errno, ucs_status_t, fi_errno …: for logs only. With handler_failed: what handler_code()
    /// tells.
    std::int32_t native = 0;

    constexpr bool ok() const noexcept { return code == errc::ok; }
    /// What the handler itself failed with: the code of the amalgam::error that it threw, or that
    /// it gave to responder::fail(). handler_failed: it threw something else. Any other code than
    /// handler_failed: ok, as no handler failed.
    constexpr errc handler_code() const noexcept {
        if (code != errc::handler_failed) return errc::ok;
        return native > 0 && native < 256 ? static_cast<errc>(native) : errc::handler_failed;
    }
    friend constexpr bool operator==(status a, errc b) noexcept { return a.code == b; }
    friend constexpr bool operator==(status a, status b) noexcept { return a.code == b.code; }
};
static_assert(sizeof(status) == 8 && std::is_trivially_copyable_v<status>);

/// "disconnected (native 104)", or without a native code "disconnected": for logs, not for users.
std::string to_string(status what);

/// What blocking calls throw: a status, and one sentence that says what was wrong,
/// what was expected, and what to do.
class error : public std::runtime_error {
public:
    error(status what, const std::string& sentence) : std::runtime_error(sentence), what_(what) {}
    error(errc code, const std::string& sentence) : error(status{code}, sentence) {}

    status code() const noexcept { return what_; }
    /// What the handler itself failed with, where code() is handler_failed: see status.
    errc handler_code() const noexcept { return what_.handler_code(); }

private:
    status what_;
};

}  // namespace amalgam
