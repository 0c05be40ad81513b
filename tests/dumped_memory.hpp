#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>

// What a process has in its memory, and what of it a core dump would have.
namespace amalgam {

/// For tests: bytes to look for, which the test itself must not have in its memory.
class hidden_bytes {
public:
    explicit hidden_bytes(std::string_view plain) : bytes_(plain) {
        for (char& each : bytes_)
            each = static_cast<char>(each ^ mask);
    }
    /// As another process has hidden them.
    static hidden_bytes from_hidden(std::string_view bytes) {
        hidden_bytes made{std::string_view()};
        made.bytes_ = bytes;
        return made;
    }
    const std::string& hidden() const noexcept { return bytes_; }
    std::size_t size() const noexcept { return bytes_.size(); }
    /// Where they begin in [from, to), null if nowhere.
    const char* find(const char* from, const char* to) const noexcept {
        for (; to - from >= static_cast<std::ptrdiff_t>(size()); ++from) {
            from = static_cast<const char*>(std::memchr(
                from, bytes_[0] ^ mask, static_cast<std::size_t>(to - from) - size() + 1));
            if (from == nullptr) return nullptr;
            std::size_t same = 1;
            while (same < size() && (from[same] ^ mask) == bytes_[same])
                ++same;
            if (same == size()) return from;
        }
        return nullptr;
    }

private:
    static constexpr char mask = 0x5a;
    std::string bytes_;
};

/// For tests: a part of this process's memory.
struct mapping {
    std::uintptr_t first = 0, last = 0;
    std::string name;
    bool readable = false;
    bool in_core_dumps = true;
};

/// For tests: of this process.
inline std::vector<mapping> mappings() {
    std::ifstream file("/proc/self/smaps");
    std::vector<mapping> all;
    for (std::string line; std::getline(file, line);) {
        mapping one;
        char rights[5] = {};
        if (std::sscanf(line.c_str(), "%lx-%lx %4s", &one.first, &one.last, rights) == 3) {
            one.name = line;
            one.readable = rights[0] == 'r';
            all.push_back(one);
        } else if (line.starts_with("VmFlags:") && !all.empty()) {
            all.back().in_core_dumps = line.find(" dd") == line.npos;
        }
    }
    return all;
}

/// For tests: where `wanted` is, as the mappings there.
inline std::vector<mapping> places_of(const hidden_bytes& wanted) {
    constexpr std::size_t most = std::size_t{1} << 30;  // Those of sanitizers are larger.
    const unique_fd memory(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
    EXPECT_TRUE(memory);
    std::vector<char> part(std::size_t{1} << 20);
    std::vector<mapping> found;
    const auto own = reinterpret_cast<std::uintptr_t>(part.data());
    for (const mapping& each : mappings()) {
        if (!each.readable || each.last - each.first > most) continue;
        const std::size_t step = part.size() - wanted.size() + 1;
        for (std::uintptr_t at = each.first; at < each.last; at += step) {
            const std::size_t size = std::min<std::size_t>(part.size(), each.last - at);
            const ssize_t got = ::pread(memory.get(), part.data(), size, static_cast<off_t>(at));
            const char* const end = part.data() + std::max<ssize_t>(got, 0);
            for (const char* hit = part.data(); (hit = wanted.find(hit, end)) != nullptr; ++hit) {
                const auto place = at + static_cast<std::uintptr_t>(hit - part.data());
                if (place + wanted.size() > own && place < own + part.size()) continue;
                found.push_back(each);
            }
        }
    }
    ::explicit_bzero(part.data(), part.size());
    return found;
}

/// For tests: why there is more to be found than programs have. Sanitizers do not give freed memory
/// out again.
#if defined(__has_feature)
#define AMALGAM_TEST_HAS_FEATURE(x) __has_feature(x)
#else
#define AMALGAM_TEST_HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    AMALGAM_TEST_HAS_FEATURE(address_sanitizer) || AMALGAM_TEST_HAS_FEATURE(thread_sanitizer)
inline constexpr bool keeps_freed_memory = true;
#else
inline constexpr bool keeps_freed_memory = false;
#endif
#undef AMALGAM_TEST_HAS_FEATURE

}  // namespace amalgam
