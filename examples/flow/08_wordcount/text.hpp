#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace wordcount {

/// Totals of a text.
struct totals {
    using amalgam_trivially_serializable = void;  // Three numbers, sent as raw bytes.

    std::uint64_t lines = 0;
    std::uint64_t words = 0;
    std::uint64_t bytes = 0;  ///< Counts one per line end.

    totals& operator+=(const totals& more) {
        lines += more.lines;
        words += more.words;
        bytes += more.bytes;
        return *this;
    }
    friend bool operator==(const totals&, const totals&) = default;
};

/// Count of one word.
struct word_count {
    std::string word;
    std::uint64_t count = 0;

    template <typename Archive>
    void serialize(Archive& archive) {
        archive(word, count);
    }
    friend bool operator==(const word_count&, const word_count&) = default;
};

/// Words and their counts: an open-addressed table over one block of text, so that counting a known
/// word costs a hash and a comparison, and no allocation.
class word_table {
public:
    word_table();

    void add(std::string_view word, std::uint64_t count = 1);
    std::size_t size() const { return used_; }

    /// Calls `use(std::string_view word, std::uint64_t count)` for each, in no particular order.
    template <typename Use>
    void for_each(Use&& use) const {
        for (const slot& one : slots_)
            if (one.count != 0) use(word_of(one), one.count);
    }

private:
    struct slot {
        std::uint64_t hash = 0;
        std::uint64_t count = 0;  // 0: free slot.
        std::size_t start = 0;
        std::size_t bytes = 0;
    };

    std::string_view word_of(const slot& one) const {
        return std::string_view(text_).substr(one.start, one.bytes);
    }
    void grow();

    std::vector<slot> slots_;  // Size is a power of two; at most half full.
    std::size_t used_ = 0;
    std::string text_;
};

/// Splits lines into words and counts both. A word is a run of letters, digits and non-ASCII bytes,
/// in lower case.
class counter {
public:
    void add_line(std::string_view line);

    const totals& sum() const { return sum_; }
    const word_table& words() const { return words_; }

private:
    totals sum_;
    word_table words_;
    std::string lower_;
};

/// Reads the lines of a file, without their ends, one block at a time.
class line_reader {
public:
    /// Throws amalgam::error{not_found} with a sentence if the file cannot be read.
    explicit line_reader(const std::string& path);
    ~line_reader();
    line_reader(const line_reader&) = delete;
    line_reader& operator=(const line_reader&) = delete;

    /// False at end of file. The line is valid until the next call.
    bool next(std::string_view& line);

private:
    bool fill();

    std::string path_;
    int fd_;
    std::string piece_;
    std::size_t at_ = 0;
    std::size_t end_ = 0;
};

/// The totals, then every word by descending count, then alphabetically: for comparing results.
std::string to_text(const totals& sum, const word_table& words, std::size_t top);

}  // namespace wordcount
