#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include <linux/filter.h>

namespace amalgam::detail {

/// A filter of system calls for seccomp(2), built without allocating memory. What it does not allow
/// fails with EPERM; a call by another architecture's numbers ends the process.
class call_filter {
public:
    call_filter() noexcept;

    /// A condition on the low 32 bits of one of the call's arguments.
    struct condition {
        enum class kind { without, equal, differs, at_most } what;
        int argument;
        std::uint32_t value;
        std::uint32_t bits = ~0u;  ///< Of the argument.
    };
    void allow(long number, std::initializer_list<condition> when = {}) noexcept;
    /// The program, for the kernel. Nothing can be allowed after it.
    std::span<const sock_filter> finish() noexcept;

private:
    void push(sock_filter what) noexcept;
    void load(std::size_t offset) noexcept;
    void jump(int how, std::uint32_t value, std::uint8_t yes, std::uint8_t no) noexcept;
    void answer(std::uint32_t what) noexcept;
    void refuse() noexcept;

    std::array<sock_filter, 128> all_{};
    std::size_t used_ = 0;
};

/// For the calling thread, which has its process for itself: memory that is private and not to be
/// run, clocks, locks, abort(), and writing to `keep_fd`.
call_filter calls_of_confined_code(int keep_fd) noexcept;

}  // namespace amalgam::detail
