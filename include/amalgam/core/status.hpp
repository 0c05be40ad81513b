#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace amalgam {

/// How an operation ended. Travels on the wire: never renumber. Grouped by what the caller can do.
enum class errc : std::uint8_t {
    ok = 0,  ///< Success.
    // The same request may work later.
    timed_out = 1,    ///< The deadline passed first.
    overloaded = 2,   ///< A bounded queue at the remote side is full.
    corrupt = 3,      ///< Data was damaged in transit: wrong checksum.
    unavailable = 4,  ///< The server is stopping and did not run it: retry, or try another.
    // Look the peer up again.
    unreachable = 16,   ///< Nothing answers at that address.
    disconnected = 17,  ///< The peer was connected and is gone.
    // Change the request.
    invalid = 32,      ///< The request makes no sense.
    not_found = 33,    ///< No such name, procedure, transport or resource.
    denied = 34,       ///< A key or right was refused; nothing was touched.
    mismatch = 35,     ///< The two sides disagree on a signature or version.
    unsupported = 36,  ///< This transport or build cannot do it.
    too_large = 37,    ///< Exceeds a stated limit.
    in_use = 38,       ///< The address, name or number is taken.
    // Ended here.
    canceled = 48,        ///< Somebody gave it up before its end.
    no_memory = 49,       ///< Out of memory, descriptors, threads or pinned pages.
    handler_failed = 50,  ///< The handler threw: the error has its code and text.
    closed = 51,          ///< The local object was closed or is stopping.
    internal = 52         ///< A bug in Amalgam: report it.
};

/// The stable lower-case name of a code, as in logs: "timed_out". "unknown" for a number that no
/// release defines.
std::string_view name(errc code) noexcept;

/// How an operation ended: a stable code, and a native code for logs only. Trivially copyable, 8
/// bytes: used in completions and on the wire.
struct [[nodiscard]] status {
    errc code = errc::ok;  ///< What the caller can act on.
    /// errno, ucs_status_t, fi_errno …: for logs only. With handler_failed: what handler_code()
    /// returns.
    std::int32_t native = 0;

    constexpr bool ok() const noexcept { return code == errc::ok; }
    /// What the handler failed with: the code of the amalgam::error it threw or passed to
    /// responder::fail(); handler_failed if it threw something else. ok if `code` is not
    /// handler_failed, as then no handler failed.
    constexpr errc handler_code() const noexcept {
        if (code != errc::handler_failed) return errc::ok;
        return native > 0 && native < 256 ? static_cast<errc>(native) : errc::handler_failed;
    }
    friend constexpr bool operator==(status a, errc b) noexcept { return a.code == b; }
    friend constexpr bool operator==(status a, status b) noexcept { return a.code == b.code; }
};
static_assert(sizeof(status) == 8 && std::is_trivially_copyable_v<status>);

/// "disconnected (native 104)", or "disconnected" without a native code. For logs, not for users.
std::string to_string(status what);

/// Thrown by blocking calls: a status, and one sentence that says what was wrong, what was
/// expected, and what to do.
class error : public std::runtime_error {
public:
    error(status what, const std::string& sentence) : std::runtime_error(sentence), what_(what) {}
    error(errc code, const std::string& sentence) : error(status{code}, sentence) {}

    status code() const noexcept { return what_; }
    /// What the handler failed with, if code() is handler_failed: see status.
    errc handler_code() const noexcept { return what_.handler_code(); }

private:
    status what_;
};

}  // namespace amalgam
