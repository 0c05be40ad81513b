#include "fabric/trust/openssl/openssl_functions.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include <dlfcn.h>
#include <fmt/format.h>
#include <openssl/opensslv.h>

#include "fabric/trust/openssl/openssl_library.hpp"

// Each function is a jump. To where it stands is not known at first: then load() finds all, and the
// jump is taken with the arguments that it was called with. They are kept in assembly, as no C++
// function can hand on arguments of any number and type.

#define AMALGAM_TEXT_OF(what) #what
#define AMALGAM_TEXT(what) AMALGAM_TEXT_OF(what)

#if defined(AMALGAM_RENAMES_OPENSSL) && !defined(AMALGAM_LINKS_OPENSSL)

// Where it stands; null: not loaded.
#define AMALGAM_PLACE(name)                                                        \
    extern "C" [[gnu::visibility("hidden")]] std::atomic<void*> amalgam_at_##name; \
    constinit std::atomic<void*> amalgam_at_##name{nullptr};
AMALGAM_OPENSSL_FUNCTIONS(AMALGAM_PLACE)

extern "C" [[gnu::visibility("hidden")]] void amalgam_load_openssl() noexcept;

// clang-format off
#if defined(__x86_64__)

#define AMALGAM_JUMP(name)                                                 \
    asm(".text\n"                                                          \
        ".p2align 4\n"                                                     \
        ".globl amalgam_openssl_" #name "\n"                               \
        ".type amalgam_openssl_" #name ", @function\n"                     \
        "amalgam_openssl_" #name ":\n"                                     \
        "    movq amalgam_at_" #name "(%rip), %r11\n"                      \
        "    testq %r11, %r11\n"                                           \
        "    je 1f\n"                                                      \
        "    jmp *%r11\n"                                                  \
        "1:  leaq amalgam_at_" #name "(%rip), %r11\n"                      \
        "    jmp amalgam_openssl_first_call\n"                             \
        ".size amalgam_openssl_" #name ", .-amalgam_openssl_" #name "\n");

// Takes the place in r11. None of the functions has an argument in a vector register.
asm(R"(
.text
.p2align 4
.type amalgam_openssl_first_call, @function
amalgam_openssl_first_call:
    .cfi_startproc
    pushq %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    movq %rsp, %rbp
    .cfi_def_cfa_register %rbp
    pushq %rdi
    pushq %rsi
    pushq %rdx
    pushq %rcx
    pushq %r8
    pushq %r9
    pushq %rax
    pushq %r11
    call amalgam_load_openssl
    popq %r11
    popq %rax
    popq %r9
    popq %r8
    popq %rcx
    popq %rdx
    popq %rsi
    popq %rdi
    popq %rbp
    .cfi_def_cfa %rsp, 8
    movq (%r11), %r11
    jmp *%r11
    .cfi_endproc
.size amalgam_openssl_first_call, .-amalgam_openssl_first_call
)");

#else  // AArch64

#define AMALGAM_JUMP(name)                                                 \
    asm(".text\n"                                                          \
        ".p2align 4\n"                                                     \
        ".globl amalgam_openssl_" #name "\n"                               \
        ".type amalgam_openssl_" #name ", %function\n"                     \
        "amalgam_openssl_" #name ":\n"                                     \
        "    adrp x16, amalgam_at_" #name "\n"                             \
        "    add x16, x16, :lo12:amalgam_at_" #name "\n"                   \
        "    ldar x17, [x16]\n"                                            \
        "    cbz x17, amalgam_openssl_first_call\n"                        \
        "    br x17\n"                                                     \
        ".size amalgam_openssl_" #name ", .-amalgam_openssl_" #name "\n");

// Takes the place in x16. None of the functions has an argument in a vector register.
asm(R"(
.text
.p2align 4
.type amalgam_openssl_first_call, %function
amalgam_openssl_first_call:
    .cfi_startproc
    stp x29, x30, [sp, #-96]!
    .cfi_def_cfa_offset 96
    .cfi_offset 29, -96
    .cfi_offset 30, -88
    mov x29, sp
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    stp x8, x16, [sp, #80]
    bl amalgam_load_openssl
    ldp x8, x16, [sp, #80]
    ldp x6, x7, [sp, #64]
    ldp x4, x5, [sp, #48]
    ldp x2, x3, [sp, #32]
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #96
    .cfi_def_cfa_offset 0
    ldr x17, [x16]
    br x17
    .cfi_endproc
.size amalgam_openssl_first_call, .-amalgam_openssl_first_call
)");

#endif
// clang-format on
AMALGAM_OPENSSL_FUNCTIONS(AMALGAM_JUMP)

namespace amalgam::detail {
namespace {

/// OPENSSL_SHLIB_VERSION is part of the name, and says which programs it fits.
constexpr const char* library_name = "libssl.so." AMALGAM_TEXT(OPENSSL_SHLIB_VERSION);

result<void> load() noexcept try {
    // Never closed. Where the program is linked with it, this is the same.
    void* const library = ::dlopen(library_name, RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr)
        return {errc::unsupported,
                fmt::format("keys and tcp+tls:// need OpenSSL {}, which cannot be loaded ({}), "
                            "expected its libraries where the system looks for them; example: apt "
                            "install libssl3",
                            OPENSSL_SHLIB_VERSION, ::dlerror())};
    const char* missing = nullptr;
    const auto find = [&](const char* name, std::atomic<void*>& at) {
        void* const found = ::dlsym(library, name);  // Also of libcrypto, which it needs.
        if (found == nullptr) missing = name;
        at.store(found, std::memory_order_release);
    };
#define AMALGAM_FIND(name) find(#name, amalgam_at_##name);
    AMALGAM_OPENSSL_FUNCTIONS(AMALGAM_FIND)
#undef AMALGAM_FIND
    if (missing == nullptr) return {};
    return {errc::unsupported, fmt::format("{} has no function {}, expected OpenSSL 3.0 or newer",
                                           library_name, missing)};
} catch (const std::bad_alloc&) {
    return {errc::no_memory, {}};
}

}  // namespace

result<void> find_openssl() noexcept {
    static const result<void> found = load();
    return found;
}

}  // namespace amalgam::detail

/// For calls from where nobody asked find_openssl() before.
void amalgam_load_openssl() noexcept {
    const amalgam::result<void> found = amalgam::detail::find_openssl();
    if (found) return;
    std::fprintf(stderr, "amalgam: %s\n", std::string(found.sentence()).c_str());
    std::abort();
}

#else

// clang-format off
#if defined(__x86_64__)
#define AMALGAM_JUMP(name)                           \
    asm(".text\n"                                    \
        ".globl amalgam_openssl_" #name "\n"         \
        ".type amalgam_openssl_" #name ", @function\n" \
        "amalgam_openssl_" #name ": jmp " #name "@PLT\n");
AMALGAM_OPENSSL_FUNCTIONS(AMALGAM_JUMP)
#elif defined(__aarch64__)
#define AMALGAM_JUMP(name)                           \
    asm(".text\n"                                    \
        ".globl amalgam_openssl_" #name "\n"         \
        ".type amalgam_openssl_" #name ", %function\n" \
        "amalgam_openssl_" #name ": b " #name "\n");
AMALGAM_OPENSSL_FUNCTIONS(AMALGAM_JUMP)
#endif
// clang-format on

namespace amalgam::detail {

result<void> find_openssl() noexcept {
    return {};
}

}  // namespace amalgam::detail

#endif
