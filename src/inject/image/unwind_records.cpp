#include "inject/image/unwind_records.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include <amalgam/core/bytes.hpp>

// The format: Linux Standard Base Core Specification 5.0, chapter 10.6; the encodings are those
// compilers use for position-independent code.
namespace amalgam::detail {

namespace {

// Pointer encodings: size, base, and whether through an indirection.
constexpr std::uint8_t signed_4_from_here = 0x1b;
constexpr std::uint8_t signed_8_from_here = 0x1c;
constexpr std::uint8_t by_a_word = 0x80;
constexpr std::uint8_t left_out = 0xff;

constexpr std::array<std::string_view, 2> personalities{"__gxx_personality_v0",
                                                        "__gcc_personality_v0"};

/// Reads consecutive values; past the end they read as 0, and ok() is false.
class record_reader {
public:
    record_reader(std::span<const std::uint8_t> all, std::size_t from, std::size_t to) noexcept
        : all_(all), at_(from), end_(to) {}

    bool ok() const noexcept { return ok_; }
    std::size_t at() const noexcept { return at_; }
    std::size_t left() const noexcept { return end_ - at_; }

    std::uint8_t byte() noexcept { return take(1) ? all_[at_ - 1] : std::uint8_t{0}; }
    template <typename T>
    T number() noexcept {
        if (!take(sizeof(T))) return 0;
        return load_le<T>(reinterpret_cast<const std::byte*>(all_.data() + at_ - sizeof(T)));
    }
    std::uint64_t leb128() noexcept {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 63; shift += 7) {
            const std::uint8_t each = byte();
            value |= std::uint64_t{each & 0x7fu} << shift;
            if ((each & 0x80) == 0) return value;
        }
        ok_ = false;
        return 0;
    }
    std::string_view text() noexcept {
        const auto* const from = reinterpret_cast<const char*>(all_.data()) + at_;
        std::size_t bytes = 0;
        while (byte() != 0)
            ++bytes;
        return ok_ ? std::string_view(from, bytes) : std::string_view();
    }
    /// An offset in that encoding.
    std::int64_t difference(std::uint8_t encoding) noexcept {
        if ((encoding & 0x0f) == (signed_8_from_here & 0x0f))
            return static_cast<std::int64_t>(number<std::uint64_t>());
        return static_cast<std::int32_t>(number<std::uint32_t>());
    }

private:
    bool take(std::size_t bytes) noexcept {
        if (!ok_ || bytes > end_ - at_) return ok_ = false;
        at_ += bytes;
        return true;
    }

    std::span<const std::uint8_t> all_;
    std::size_t at_;
    std::size_t end_;
    bool ok_ = true;
};

/// What a common record defines for records that refer to it.
struct common_record {
    std::size_t at = 0;
    std::uint8_t addresses = 0;
    std::uint8_t tables = left_out;
};

class record_checker {
public:
    /// Precondition: the image's relocations are valid.
    record_checker(const image_contents& image, std::span<const std::uint8_t> records)
        : image_(image), records_(records) {
        for (const image_relocation& each : image.relocations) {
            if (each.what == image_fixup::import && each.addend == 0 &&
                std::find(personalities.begin(), personalities.end(),
                          image.imports[each.symbol].name) != personalities.end())
                personality_words_.push_back(each.offset);
        }
        std::sort(personality_words_.begin(), personality_words_.end());
    }

    std::optional<std::string> fault() {
        for (std::size_t at = 0;;) {
            if (records_.size() - at < 4) return "its unwind records have no terminator";
            const auto bytes =
                load_le<std::uint32_t>(reinterpret_cast<const std::byte*>(records_.data() + at));
            if (bytes == 0) return std::nullopt;
            if (bytes < 4 || bytes > records_.size() - at - 4)
                return "an unwind record is too long";
            record_reader read(records_, at + 4, at + 4 + bytes);
            const std::size_t here = read.at();
            const auto back = read.number<std::uint32_t>();
            auto why = back == 0 ? fault_of_common(at, read) : fault_of_range(here, back, read);
            if (why) return why;
            at += 4 + std::size_t{bytes};
        }
    }

private:
    static bool is_address(std::uint8_t encoding) noexcept {
        return encoding == signed_4_from_here || encoding == signed_8_from_here;
    }
    /// Image offset at that distance from a place in the records; far outside if out of bounds.
    std::int64_t place(std::size_t from, std::int64_t difference) const noexcept {
        constexpr std::int64_t far = std::int64_t{1} << 40;
        return std::int64_t{image_.unwind.offset} + static_cast<std::int64_t>(from) +
               std::clamp(difference, -far, far);
    }
    bool lies_in(std::int64_t from, std::int64_t bytes, bool code) const noexcept {
        return std::any_of(
            image_.segments.begin(), image_.segments.end(), [&](const image_segment& each) {
                return (!code || each.rights == image_rights::read_execute) &&
                       from >= std::int64_t{each.offset} && bytes >= 0 &&
                       bytes <= std::int64_t{each.bytes} &&
                       from - std::int64_t{each.offset} <= std::int64_t{each.bytes} - bytes;
            });
    }
    /// Whether the word is relocated to a personality function of the runtimes.
    bool names_personality(std::int64_t word) const noexcept {
        return std::binary_search(personality_words_.begin(), personality_words_.end(), word);
    }

    std::optional<std::string> fault_of_common(std::size_t at, record_reader& read) {
        common_record made{at, 0, left_out};
        const std::uint8_t version = read.byte();
        if (version != 1 && version != 3) return "an unwind record has an unknown version";
        const std::string_view letters = read.text();
        (void)read.leb128();
        (void)read.leb128();
        version == 1 ? (void)read.byte() : (void)read.leb128();
        if (!read.ok() || letters.empty() || letters.front() != 'z')
            return "an unwind record has no augmentation data";
        const std::uint64_t bytes = read.leb128();
        if (!read.ok() || bytes > read.left()) return "an unwind record is truncated";
        const std::size_t end = read.at() + bytes;
        for (const char each : letters.substr(1)) {
            if (each == 'R') {
                made.addresses = read.byte();
            } else if (each == 'L') {
                made.tables = read.byte();
            } else if (each == 'P') {
                const std::uint8_t how = read.byte();
                const std::size_t here = read.at();
                if ((how & by_a_word) == 0 || !is_address(how & 0x7f) ||
                    !names_personality(place(here, read.difference(how))))
                    return "an unwind record names a personality routine that is not of C++ or C";
            } else if (each != 'S' && each != 'B') {
                return "an unwind record has an unknown augmentation";
            }
        }
        if (!read.ok() || read.at() != end) return "an unwind record is truncated";
        if (!is_address(made.addresses) || (made.tables != left_out && !is_address(made.tables)))
            return "an unwind record has addresses that are not relative";
        common_.push_back(made);
        return std::nullopt;
    }

    std::optional<std::string> fault_of_range(std::size_t here, std::uint32_t back,
                                              record_reader& read) const {
        if (back > here) return "an unwind record refers to a record that does not precede it";
        const auto of = std::lower_bound(
            common_.begin(), common_.end(), here - back,
            [](const common_record& each, std::size_t at) { return each.at < at; });
        if (of == common_.end() || of->at != here - back)
            return "an unwind record refers to a record that does not precede it";
        const std::size_t start = read.at();
        const std::int64_t from = place(start, read.difference(of->addresses));
        const std::int64_t bytes = read.difference(of->addresses);
        if (!read.ok() || !lies_in(from, bytes, true))
            return "an unwind record covers addresses that are not code of the image";
        const std::uint64_t more = read.leb128();
        if (!read.ok() || more > read.left()) return "an unwind record is truncated";
        if (of->tables == left_out || more == 0) return std::nullopt;
        record_reader table(records_, read.at(), read.at() + more);
        const std::size_t there = table.at();
        const std::int64_t away = table.difference(of->tables);
        if (!table.ok() || (away != 0 && !lies_in(place(there, away), 1, false)))
            return "an unwind record has its table outside of the image";
        return std::nullopt;
    }

    const image_contents& image_;
    const std::span<const std::uint8_t> records_;
    std::vector<std::int64_t> personality_words_;  // Sorted.
    std::vector<common_record> common_;            // Sorted.
};

}  // namespace

std::optional<std::string> fault_of_unwind_records(const image_contents& image,
                                                   std::span<const std::uint8_t> records) {
    return record_checker(image, records).fault();
}

}  // namespace amalgam::detail
