#include "text.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <amalgam/core.hpp>

namespace wordcount {
namespace {

constexpr std::size_t piece_bytes = std::size_t{256} << 10;

/// Each byte as it is counted, or 0 if it separates words.
constexpr std::array<char, 256> folded = [] {
    std::array<char, 256> table{};
    for (int c = 0; c < 256; ++c) {
        bool upper = c >= 'A' && c <= 'Z';
        bool kept = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c >= 0x80;
        table[static_cast<std::size_t>(c)] =
            static_cast<char>(upper ? c - 'A' + 'a' : (kept ? c : 0));
    }
    return table;
}();

std::uint64_t hash_of(std::string_view word) {
    std::uint64_t hash = word.size();
    const char* at = word.data();
    std::size_t left = word.size();
    auto take = [&hash](std::uint64_t bits) {
        hash = (hash ^ bits) * 0x9fb21c651e98df25u;
        hash ^= hash >> 32;
    };
    for (; left >= 8; at += 8, left -= 8) {
        std::uint64_t bits;
        std::memcpy(&bits, at, 8);
        take(bits);
    }
    std::uint64_t rest = 0;
    for (std::size_t i = 0; i < left; ++i)
        rest |= std::uint64_t{static_cast<unsigned char>(at[i])} << (8 * i);
    take(rest);
    return hash;
}

}  // namespace

word_table::word_table() : slots_(4096) {}

void word_table::add(std::string_view word, std::uint64_t count) {
    std::uint64_t hash = hash_of(word);
    for (std::size_t i = hash;; ++i) {
        slot& here = slots_[i & (slots_.size() - 1)];
        if (here.count == 0) {
            here = {hash, count, text_.size(), word.size()};
            text_ += word;
            if (++used_ * 2 > slots_.size()) grow();
            return;
        }
        if (here.hash == hash && word_of(here) == word) {
            here.count += count;
            return;
        }
    }
}

void word_table::grow() {
    std::vector<slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const slot& one : old) {
        if (one.count == 0) continue;
        std::size_t i = one.hash;
        while (slots_[i & (slots_.size() - 1)].count != 0)
            ++i;
        slots_[i & (slots_.size() - 1)] = one;
    }
}

void counter::add_line(std::string_view line) {
    ++sum_.lines;
    sum_.bytes += line.size() + 1;
    lower_.resize(line.size() + 1);
    char* word = lower_.data();
    char* end = word;
    auto finish_word = [&] {
        if (end == word) return;
        words_.add({word, static_cast<std::size_t>(end - word)});
        ++sum_.words;
        end = word;
    };
    for (char c : line) {
        char counted = folded[static_cast<unsigned char>(c)];
        if (counted != 0) {
            *end++ = counted;
        } else {
            finish_word();
        }
    }
    finish_word();
}

line_reader::line_reader(const std::string& path)
    : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), piece_(piece_bytes, '\0') {
    if (fd_ < 0 || !fill()) {
        int why = errno;
        if (fd_ >= 0 && why == 0) return;  // An empty file.
        if (fd_ >= 0) ::close(fd_);
        throw amalgam::error(amalgam::errc::not_found,
                             "the file \"" + path + "\" cannot be read (" + std::strerror(why) +
                                 "), expected a text; example: FILES=\"README.md\"");
    }
}

line_reader::~line_reader() {
    ::close(fd_);
}

bool line_reader::fill() {
    if (at_ > 0) {
        std::memmove(piece_.data(), piece_.data() + at_, end_ - at_);
        end_ -= at_;
        at_ = 0;
    }
    if (end_ == piece_.size()) piece_.resize(piece_.size() * 2);  // A line longer than the buffer.
    errno = 0;
    ssize_t got = ::read(fd_, piece_.data() + end_, piece_.size() - end_);
    if (got > 0) end_ += static_cast<std::size_t>(got);
    return got > 0;
}

bool line_reader::next(std::string_view& line) {
    std::size_t searched = 0;
    for (;;) {
        const char* from = piece_.data() + at_;
        std::size_t left = end_ - at_;
        const void* found =
            searched < left ? std::memchr(from + searched, '\n', left - searched) : nullptr;
        if (found != nullptr) {
            auto bytes = static_cast<std::size_t>(static_cast<const char*>(found) - from);
            line = {from, bytes};
            at_ += bytes + 1;
            return true;
        }
        searched = left;
        if (fill()) continue;
        if (errno != 0)
            throw amalgam::error(amalgam::errc::not_found, "the file \"" + path_ +
                                                               "\" cannot be read to its end (" +
                                                               std::strerror(errno) + ")");
        line = {piece_.data() + at_, end_ - at_};
        at_ = end_;
        return !line.empty();
    }
}

std::string to_text(const totals& sum, const word_table& words, std::size_t top) {
    std::vector<std::pair<std::string_view, std::uint64_t>> sorted;
    words.for_each([&sorted](std::string_view word, std::uint64_t count) {
        sorted.emplace_back(word, count);
    });
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
        return a.second != b.second ? a.second > b.second : a.first < b.first;
    });
    std::string text = "lines " + std::to_string(sum.lines) + "\nwords " +
                       std::to_string(sum.words) + "\nbytes " + std::to_string(sum.bytes) +
                       "\ndistinct " + std::to_string(sorted.size()) + "\n";
    for (std::size_t i = 0; i < std::min(top, sorted.size()); ++i)
        text += std::to_string(sorted[i].second) + " " + std::string(sorted[i].first) + "\n";
    return text;
}

}  // namespace wordcount
