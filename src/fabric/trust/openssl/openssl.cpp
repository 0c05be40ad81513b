#include "fabric/trust/openssl/openssl.hpp"

#include <string_view>
#include <utility>

#include <dlfcn.h>
#include <openssl/crypto.h>
#include <openssl/err.h>

#include <amalgam/core/log.hpp>

namespace amalgam::detail {
namespace {

// Beside long-lived keys it holds the ephemeral one of each handshake under way: 32 bytes each. A
// full heap would fail handshakes, so there is room for many more than max_strangers.
constexpr std::size_t secure_heap_bytes = std::size_t{1} << 20;
constexpr std::size_t secure_heap_piece = 32;

thread_local bool has_lacked_memory = false;

}  // namespace

void clear_openssl_errors() noexcept {
    while (const unsigned long code = ERR_get_error())
        if (ERR_GET_REASON(code) == ERR_R_MALLOC_FAILURE) has_lacked_memory = true;
}

bool openssl_lacked_memory() noexcept {
    clear_openssl_errors();
    return std::exchange(has_lacked_memory, false);
}

std::string take_openssl_error() {
    const unsigned long code = ERR_peek_last_error();
    const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
    std::string text = reason == nullptr ? "unknown reason" : reason;
    clear_openssl_errors();
    return text;
}

no_errors_left::~no_errors_left() {
    clear_openssl_errors();
}

bool openssl_allocates_by_malloc() noexcept {
    static const bool does = [] {
        CRYPTO_malloc_fn how = nullptr;
        CRYPTO_get_mem_functions(&how, nullptr, nullptr);
        Dl_info about{};
        return how != nullptr && ::dladdr(reinterpret_cast<void*>(how), &about) != 0 &&
               about.dli_sname != nullptr && std::string_view(about.dli_sname) == "CRYPTO_malloc";
    }();
    return does;
}

std::mutex& secure_heap_lock() noexcept {
    static constinit std::mutex lock;
    return lock;
}

void use_secure_heap() noexcept {
    static std::once_flag once;
    std::call_once(once, [] {
        if (CRYPTO_secure_malloc_initialized() != 0) return;
        constexpr int not_locked = 2;
        const int made = CRYPTO_secure_malloc_init(secure_heap_bytes, secure_heap_piece);
        if (made == not_locked)
            log(log_level::info, "trust", "memory of private keys is not locked: limit too low",
                {{"bytes", secure_heap_bytes}});
        else if (made == 0)
            log(log_level::warn, "trust", "private keys are in ordinary memory: no secure heap");
    });
}

}  // namespace amalgam::detail
