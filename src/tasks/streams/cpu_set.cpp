#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <limits>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <sched.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/cpu_set.hpp>

#include "tasks/streams/affinity.hpp"
#include "tasks/streams/machine.hpp"

namespace amalgam {

namespace {

[[noreturn]] void refuse_text(std::string_view all, std::string_view part) {
    throw error(errc::invalid,
                fmt::format("\"{}\" in the set of CPUs \"{}\" cannot be read, expected a number, a "
                            "range, or one after socket:, numa:, core:, whole_core: or thread:; "
                            "example: \"0-3,core:8\"",
                            part, all));
}

struct range {
    unsigned first, last;
};
std::optional<range> read_range(std::string_view text) {
    const auto number = [](std::string_view digits) -> std::optional<unsigned> {
        unsigned value = 0;
        const char* const end = digits.data() + digits.size();
        const auto [at, failed] = std::from_chars(digits.data(), end, value);
        if (digits.empty() || failed != std::errc() || at != end || value > cpu_set::most)
            return std::nullopt;
        return value;
    };
    const std::size_t dash = text.find('-');
    const auto first = number(text.substr(0, dash));
    const auto last = dash == text.npos ? first : number(text.substr(dash + 1));
    if (!first || !last || *last < *first) return std::nullopt;
    return range{*first, *last};
}

/// Calls `visit(n)` for each bit n that is set, ascending: a large set costs a look per word.
template <typename Word, typename Visit>
void visit_bits(const std::vector<Word>& words, Visit visit) {
    unsigned first = 0;
    for (const Word each : words) {
        for (Word left = each; left != 0; left &= left - 1)
            visit(first + static_cast<unsigned>(std::countr_zero(left)));
        first += std::numeric_limits<Word>::digits;
    }
}

}  // namespace

cpu_set::cpu_set(std::initializer_list<unsigned> ids) {
    for (const unsigned each : ids)
        add(each);
}

cpu_set::cpu_set(std::string_view text) {
    std::unique_ptr<detail::machine> parts;
    for (std::string_view left = text;;) {
        const std::size_t comma = left.find(',');
        const std::string_view item = left.substr(0, comma);
        const std::size_t colon = item.find(':');
        const auto which = read_range(colon == item.npos ? item : item.substr(colon + 1));
        if (!which) refuse_text(text, item);
        if (colon != item.npos) {
            const std::string_view kind = item.substr(0, colon);
            if (!detail::machine::has_kind(kind)) refuse_text(text, item);
            if (!parts) parts = std::make_unique<detail::machine>();
            for (unsigned i = which->first; i <= which->last; ++i)
                parts->add(kind, i, *this);
        } else {
            for (unsigned i = which->first; i <= which->last; ++i)
                add(i);
        }
        if (comma == left.npos) return;
        left.remove_prefix(comma + 1);
    }
}

void cpu_set::add(unsigned id) {
    if (id > most) {
        throw error(errc::invalid,
                    fmt::format("CPU {} is out of range, expected 0 to {}", id, most));
    }
    if (bits_.size() <= id / 64) bits_.resize(id / 64 + 1);
    bits_[id / 64] |= std::uint64_t{1} << id % 64;
}

void cpu_set::remove(unsigned id) noexcept {
    if (contains(id)) bits_[id / 64] &= ~(std::uint64_t{1} << id % 64);
    trim();
}

void cpu_set::trim() noexcept {
    while (!bits_.empty() && bits_.back() == 0)
        bits_.pop_back();
}

bool cpu_set::contains(unsigned id) const noexcept {
    return id / 64 < bits_.size() && (bits_[id / 64] >> id % 64 & 1) != 0;
}

std::size_t cpu_set::size() const noexcept {
    std::size_t count = 0;
    for (const std::uint64_t each : bits_)
        count += static_cast<std::size_t>(std::popcount(each));
    return count;
}

std::vector<unsigned> cpu_set::ids() const {
    std::vector<unsigned> all;
    all.reserve(size());
    visit_bits(bits_, [&](unsigned id) { all.push_back(id); });
    return all;
}

std::string cpu_set::text() const {
    std::string text;
    const auto all = ids();
    for (std::size_t i = 0; i < all.size();) {
        std::size_t end = i + 1;
        while (end < all.size() && all[end] == all[end - 1] + 1)
            ++end;
        if (!text.empty()) text += ',';
        text += std::to_string(all[i]);
        if (end - i > 1) text += '-' + std::to_string(all[end - 1]);
        i = end;
    }
    return text;
}

cpu_set& cpu_set::operator|=(const cpu_set& other) {
    bits_.resize(std::max(bits_.size(), other.bits_.size()));
    for (std::size_t i = 0; i < other.bits_.size(); ++i)
        bits_[i] |= other.bits_[i];
    return *this;
}

cpu_set& cpu_set::operator&=(const cpu_set& other) noexcept {
    for (std::size_t i = 0; i < bits_.size(); ++i)
        bits_[i] &= i < other.bits_.size() ? other.bits_[i] : 0;
    trim();
    return *this;
}

cpu_set& cpu_set::operator-=(const cpu_set& other) noexcept {
    for (std::size_t i = 0; i < std::min(bits_.size(), other.bits_.size()); ++i)
        bits_[i] &= ~other.bits_[i];
    trim();
    return *this;
}

cpu_set cpu_set::of_this_thread() {
    return detail::affinity_of(::pthread_self());
}

namespace detail {

namespace {

/// The kernel's form, with room for all numbers.
struct kernel_set {
    static constexpr std::size_t bytes = CPU_ALLOC_SIZE(cpu_set::most + 1);
    cpu_set_t* get() noexcept { return reinterpret_cast<cpu_set_t*>(bits.data()); }
    std::vector<unsigned long> bits = std::vector<unsigned long>(bytes / sizeof(unsigned long));
};

}  // namespace

cpu_set affinity_of(pthread_t thread) {
    kernel_set allowed;
    cpu_set all;
    if (::pthread_getaffinity_np(thread, kernel_set::bytes, allowed.get()) != 0) return all;
    visit_bits(allowed.bits, [&](unsigned id) { all.add(id); });
    return all;
}

int bind_thread(pthread_t thread, const cpu_set& to) {
    kernel_set wanted;
    if (to.empty()) std::fill(wanted.bits.begin(), wanted.bits.end(), ~0UL);
    for (const unsigned id : to.ids())
        CPU_SET_S(id, kernel_set::bytes, wanted.get());
    const int failed = ::pthread_setaffinity_np(thread, kernel_set::bytes, wanted.get());
    // The kernel leaves out what is not allowed, as long as anything is.
    return failed == 0 && !to.empty() && affinity_of(thread) != to ? EINVAL : failed;
}

}  // namespace detail

}  // namespace amalgam
