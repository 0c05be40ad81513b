#pragma once

#include <cstddef>
#include <cstdint>

// Where the switch is our own, see switch.hpp; suspended stacks can be read there, too.
#if defined(__ELF__) && (defined(__x86_64__) || defined(__aarch64__))
#define AMALGAM_OWN_STACK_SWITCH 1
#endif

namespace amalgam::detail {

#if defined(AMALGAM_OWN_STACK_SWITCH) && defined(__x86_64__)

/// Floating-point rounding and trap settings: MXCSR and the x87 control word.
struct float_control {
    std::uint32_t mxcsr = 0;
    std::uint16_t x87 = 0;
    std::uint16_t scratch = 0;

    /// Of the calling thread.
    static float_control now() noexcept {
        float_control read;
        read.renew();
        return read;
    }
    /// The same in place.
    void renew() noexcept {
        asm volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(mxcsr), "=m"(x87));
        constexpr std::uint32_t exceptions_seen = 0x3f;
        mxcsr &= ~exceptions_seen;
    }
    /// Unless this is the usual setting, replaces it with the calling thread's.
    void make_usual() noexcept {
        if (!is_usual()) *this = now();
    }
    bool is_usual() const noexcept { return x87 == usual_x87; }
    /// This is what the calling stack began with. False: its setting is another one by now.
    bool make_as_begun() const noexcept;
    static constexpr std::uint16_t usual_x87 = 0x37f;  // initial value in the ABI
};

// As in switch_stack(): MXCSR is loaded in any case, and not read.
inline bool float_control::make_as_begun() const noexcept {
    std::uint16_t present;
    asm volatile("fnstcw %0" : "=m"(present));
    if (present != x87 || !is_usual()) return false;
    asm volatile("ldmxcsr %0" : : "m"(mxcsr));
    return true;
}

#elif defined(AMALGAM_OWN_STACK_SWITCH) && defined(__aarch64__)

/// Floating-point rounding, trap and flush-to-zero settings: FPCR, of which 32 bits are in use.
/// FPSR is not among them: it belongs to no call stack.
struct float_control {
    std::uint32_t fpcr = 0;

    /// Of the calling thread.
    static float_control now() noexcept {
        std::uint64_t read;
        asm volatile("mrs %0, fpcr" : "=r"(read));
        return {static_cast<std::uint32_t>(read)};
    }
    void renew() noexcept { *this = now(); }
    /// Unless this is the usual setting, replaces it with the calling thread's.
    void make_usual() noexcept {
        if (!is_usual()) *this = now();
    }
    bool is_usual() const noexcept { return fpcr == 0; }  // initial value in the ABI
    /// This is what the calling stack began with. False: its setting is another one by now.
    bool make_as_begun() const noexcept { return is_usual() && now().fpcr == fpcr; }
};

#else

/// Unused where Boost switches.
struct float_control {
    static float_control now() noexcept { return {}; }
    void renew() noexcept {}
    void make_usual() noexcept {}
    bool is_usual() const noexcept { return true; }
    bool make_as_begun() const noexcept { return true; }
};

#endif

/// A call stack that is not running.
struct suspended_stack {
    void* pointer = nullptr;  ///< Its registers are saved there.
    float_control floats;     ///< Restored when it resumes.
};

/// Passed to the resumed stack by the one that switched to it.
struct arrival {
    suspended_stack* place;  ///< Where this stack was saved.
    void* data;
};

}  // namespace amalgam::detail
