#include "fabric/memory/kept_signals.hpp"

#include <array>
#include <csignal>
#include <cstddef>
#include <mutex>

#include <dlfcn.h>
#include <link.h>

namespace amalgam::detail {
namespace {

// Shared by all live objects: the handlers that the first of them found.
std::mutex kept_guard;
std::size_t kept_by = 0;
std::array<struct sigaction, NSIG> kept_handlers{};

void* code_of(const struct sigaction& one) noexcept {
    return (one.sa_flags & SA_SIGINFO) != 0 ? reinterpret_cast<void*>(one.sa_sigaction)
                                            : reinterpret_cast<void*>(one.sa_handler);
}

bool is_same_handler(const struct sigaction& a, const struct sigaction& b) noexcept {
    return code_of(a) == code_of(b) && a.sa_flags == b.sa_flags;
}

const link_map* object_of(void* code) noexcept {
    Dl_info found{};
    link_map* object = nullptr;
    const bool is_known =
        ::dladdr1(code, &found, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) != 0;
    return is_known ? object : nullptr;
}

bool is_foreign(const struct sigaction& one) noexcept {
    const link_map* const object = object_of(code_of(one));
    if (object == nullptr) return true;
    const bool is_program = object->l_name == nullptr || *object->l_name == '\0';
    return !is_program && object != object_of(reinterpret_cast<void*>(&is_same_handler));
}

}  // namespace

kept_signals::kept_signals() noexcept {
    const std::lock_guard lock(kept_guard);
    if (kept_by++ > 0) return;
    for (std::size_t each = 1; each < kept_handlers.size(); ++each)
        (void)::sigaction(static_cast<int>(each), nullptr, &kept_handlers[each]);
}

kept_signals::~kept_signals() {
    const std::lock_guard lock(kept_guard);
    --kept_by;
    for (std::size_t each = 1; each < kept_handlers.size(); ++each) {
        struct sigaction now {};
        // glibc reserves two signals.
        if (::sigaction(static_cast<int>(each), nullptr, &now) != 0) continue;
        if (!is_same_handler(now, kept_handlers[each]) && is_foreign(now))
            (void)::sigaction(static_cast<int>(each), &kept_handlers[each], nullptr);
    }
}

}  // namespace amalgam::detail
