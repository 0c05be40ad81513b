#pragma once

#include <mutex>

namespace amalgam::detail {

/// The ranks of the streams of a process: each has one, and a new one gets the lowest that is free.
///
/// Threads: any.
class ranks {
public:
    static constexpr int most = 1'000'000;

    /// `wanted`: -1 for the lowest free one. Throws error{invalid} for one that is taken or out of
    /// range.
    static int take(int wanted);
    static void give_back(int rank) noexcept;
    /// In a fork() child, which has none of the streams.
    static void forget_all() noexcept;
    static std::mutex& lock() noexcept;
};

}  // namespace amalgam::detail
