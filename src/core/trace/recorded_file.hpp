#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/detail/recorder.hpp>
#include <amalgam/core/gathered_trace.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "file_format.hpp"

namespace amalgam::detail {

/// The file that one process recorded, or records still. It is read a chunk at a time: it may have
/// gigabytes. It is read and not mapped, since a file that somebody cuts off while it is mapped
/// ends the process that looks at it. What it holds is checked as a stranger's would be: a killed
/// process leaves a record half written, and a full disk a short file. Between two calls it is
/// closed, so that any number of them can be gathered.
class recorded_file {
public:
    /// Empty, and `why` says it, if it is none.
    static std::unique_ptr<recorded_file> open(const std::string& path, std::string& why);

    const trace_file_header& header() const noexcept { return header_; }
    template <std::size_t Bytes>
    static std::string_view text_of(const char (&text)[Bytes]) noexcept {
        return {text, ::strnlen(text, Bytes)};
    }
    /// Reads the texts by number as they are now; forget_texts() has their memory back.
    void read_texts();
    void forget_texts() noexcept { texts_.reset(); }
    /// The header as it is now.
    void read_header();
    /// Empty before read_texts().
    std::string_view text(std::uint32_t index) const noexcept {
        if (texts_ == nullptr || index == 0 || index >= trace_texts) return {};
        const trace_text_slot& slot = texts_[index];
        const std::size_t length = slot.length.load(std::memory_order_relaxed);
        return {slot.text, std::min(length == 0 ? 0 : length - 1, sizeof slot.text)};
    }
    /// Calls `see(head, record)` for each record, those of a thread in its order. Of a file that is
    /// gone, for none.
    template <typename See>
    void for_each(See&& see) const {
        std::vector<std::uint32_t> read;
        read_on(read, ~std::size_t{0}, see);
    }
    /// The same for records that were not read yet; about `most` bytes of them. `read` has how much
    /// of each chunk was, and is empty at first. Returns how many bytes it was.
    template <typename See>
    std::size_t read_on(std::vector<std::uint32_t>& read, std::size_t most, See&& see) const {
        const unique_fd file = open_regular();
        if (!file) return 0;
        std::vector<char> chunk(trace_chunk_bytes);
        std::size_t done = 0;
        for (std::size_t index = 0; done < most && next_chunk(file.get(), index); ++index) {
            if (read.size() <= index) read.resize(index + 1);
            const std::size_t got = read_chunk(file.get(), index, read[index], chunk.data());
            const char* record = chunk.data();
            const char* const end = record + got;
            while (end - record >= static_cast<std::ptrdiff_t>(sizeof(trace_record_head))) {
                trace_record_head head{};
                std::memcpy(&head, record, sizeof head);
                if (head.bytes < sizeof head || head.bytes > end - record) break;
                see(head, record);
                record += head.bytes;
            }
            read[index] += static_cast<std::uint32_t>(got);
            done += got;
        }
        return done;
    }

private:
    recorded_file() = default;
    unique_fd open_regular() const;
    bool next_chunk(int file, std::size_t& index) const noexcept;
    static std::size_t read_chunk(int file, std::size_t index, std::size_t from, char* to) noexcept;

    std::string path_;
    trace_file_header header_{};
    std::unique_ptr<trace_text_slot[]> texts_;
};

/// Whether a clock has ever shown it: of damaged records it hardly is.
inline bool is_time(std::uint64_t time) noexcept {
    return time < std::uint64_t{1} << 60;
}
inline bool has_times(const trace_span_bytes& span) noexcept {
    return is_time(span.begin) && is_time(span.middle) && is_time(span.end);
}
template <typename Record>
bool has_times(const Record& record) noexcept {
    return is_time(record.time);
}

template <typename Record>
bool read_record(const trace_record_head& head, const char* at, Record& to) noexcept {
    if (head.bytes != sizeof to) return false;
    std::memcpy(&to, at, sizeof to);
    return has_times(to);
}

inline bool is_span(const trace_record_head& head) noexcept {
    return head.kind >= static_cast<std::uint8_t>(span_kind::call) &&
           head.kind <= static_cast<std::uint8_t>(span_kind::values);
}

using id_bytes = std::array<std::byte, 8>;

inline id_bytes id_of(const std::byte (&id)[8]) noexcept {
    id_bytes to;
    std::memcpy(to.data(), id, sizeof id);
    return to;
}

inline std::uint64_t number_of(const id_bytes& id) noexcept {
    std::uint64_t number = 0;
    std::memcpy(&number, id.data(), sizeof number);
    return number;
}

/// One process of a trace, as it is gathered.
struct recorded_process {
    std::unique_ptr<recorded_file> file;
    std::size_t clock = 0;  // Index of its host's.
    std::uint32_t pid = 0;  // In the trace, where it is unique.
    traced_process told{};
};

}  // namespace amalgam::detail
