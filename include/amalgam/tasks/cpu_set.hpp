#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace amalgam {

/// A set of logical CPUs, by the numbers that the OS gives them.
///
/// Threads: as a std::vector.
class cpu_set {
public:
    /// Highest number of a CPU.
    static constexpr unsigned most = 8191;

    cpu_set() = default;
    /// Throws error{invalid} for a number over `most`.
    cpu_set(std::initializer_list<unsigned> ids);
    /// Reads a list such as "0-3,8" or "numa:1,core:4-5". An item is a number or range of CPUs, or
    /// one with a name in front, numbered from 0 in the order of hwloc:
    ///     socket:1      all CPUs of a socket
    ///     numa:1        all CPUs of a NUMA node
    ///     core:1        the first hardware thread of a core
    ///     whole_core:1  all hardware threads of a core
    ///     thread:1      a hardware thread; "1" alone goes by the number of the OS
    ///
    /// Failure: throws error{invalid} for other text, or what this machine does not have;
    ///          error{unsupported} for names where Amalgam was built without hwloc, or hwloc is not
    ///          installed.
    /// Cost:    with names, milliseconds: hwloc is loaded, once, and explores the machine.
    explicit cpu_set(std::string_view text);

    /// Those that the calling thread may use.
    static cpu_set of_this_thread();

    void add(unsigned id);  ///< Throws error{invalid} for a number over `most`.
    /// Takes a CPU out, if it is in.
    void remove(unsigned id) noexcept;
    /// Whether this CPU is in the set.
    bool contains(unsigned id) const noexcept;
    bool empty() const noexcept { return bits_.empty(); }
    std::size_t size() const noexcept;
    std::vector<unsigned> ids() const;  ///< Ascending.
    std::string text() const;           ///< As "0-3,8".

    friend bool operator==(const cpu_set&, const cpu_set&) = default;
    cpu_set& operator|=(const cpu_set& other);
    cpu_set& operator&=(const cpu_set& other) noexcept;
    cpu_set& operator-=(const cpu_set& other) noexcept;

private:
    void trim() noexcept;
    std::vector<std::uint64_t> bits_;  // the last is not 0
};

}  // namespace amalgam
