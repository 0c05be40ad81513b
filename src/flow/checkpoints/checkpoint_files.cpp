#include "flow/checkpoints/checkpoint_files.hpp"

#include <cerrno>
#include <cstring>
#include <span>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/detail/printable.hpp>
#include <amalgam/core/detail/read_file.hpp>
#include <amalgam/core/detail/whole_file.hpp>
#include <amalgam/core/hash.hpp>
#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {
namespace {

using std::filesystem::path;

constexpr std::string_view magic = "amalgam checkpoint 1\n";  // The format's version.
constexpr std::string_view folder_prefix = "checkpoint.";
constexpr const char* record_name = "complete";
constexpr std::size_t checksum_bytes = 8;  // At the end: fnv1a() of all before.

path folder_of(const path& folder, std::uint64_t number) {
    return folder / fmt::format("{}{}", folder_prefix, number);
}

std::string_view text_of(const_bytes bytes) noexcept {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

failure cannot(int why, std::string sentence) {
    return {{errc::denied, why}, std::move(sentence)};
}

/// Whole or not at all.
result<void> write_whole(const path& file, const_bytes content) {
    const write_fault why =
        write_whole_file(file.string(), content, {.mode = 0600, .is_alone = true});
    if (!why) return {};
    return cannot(why.native,
                  fmt::format("a checkpoint cannot be written to \"{}\" ({}), expected a folder "
                              "with room that this user may write",
                              printable(file.string()), why.text));
}

/// Whoever may write in the folder decides what stands there: nothing is waited for or followed.
/// Empty if it is not there. Failure: `denied`; the sentence goes on after the file's name.
result<std::optional<std::string>> read_whole(const path& file) {
    const unique_fd from(::open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!from && errno == ENOENT) return std::optional<std::string>();
    const auto unreadable = [] {
        return cannot(errno, fmt::format("cannot be read ({})", std::strerror(errno)));
    };
    struct stat about {};
    if (!from || ::fstat(from.get(), &about) != 0) return unreadable();
    if (!S_ISREG(about.st_mode)) return {errc::denied, "is no regular file"};
    std::string text(static_cast<std::size_t>(about.st_size), '\0');
    const auto got = read_into(from.get(), std::as_writable_bytes(std::span(text)));
    if (!got) return unreadable();
    text.resize(*got);
    return std::optional(std::move(text));
}

void remove_files(const path& own, const std::vector<std::string>& processes) {
    for (const std::string& each : processes)
        for (const char* end : {"", ".new"})
            ::unlink((own / (each + end)).c_str());
    ::rmdir(own.c_str());  // Unless somebody has put something else there.
}

}  // namespace

result<void> write_process_record(const path& folder, const process_record& what) {
    state_bytes into;
    std::memcpy(into.extend(magic.size()), magic.data(), magic.size());
    basic_archive_writer writer(into);
    writer(what);
    std::vector<std::byte> bytes = into.take();
    const std::uint64_t sum = fnv1a(text_of(bytes));
    bytes.resize(bytes.size() + checksum_bytes);
    store_le(bytes.data() + bytes.size() - checksum_bytes, sum);
    const path own = folder_of(folder, what.number);
    std::error_code ignored;  // write_whole() says it.
    std::filesystem::create_directory(own, ignored);
    auto written = write_whole(own / what.process, bytes);
    if (written) sync_folder_of(own);
    return written;
}

result<process_record> read_process_record(const path& folder, std::uint64_t number,
                                           std::string_view process, std::string_view graph) {
    const path file = folder_of(folder, number) / process;
    const auto wrong = [&](std::string_view why) {
        return failure{
            {errc::mismatch},
            fmt::format("the checkpoint \"{}\" {}, expected the one that this program "
                        "has written; to begin anew, without it, remove \"{}\"",
                        printable(file.string()), why, printable((folder / record_name).string()))};
    };
    const auto read = read_whole(file);
    if (!read) return wrong(read.sentence());
    const std::optional<std::string>& text = read.value();
    if (!text) return wrong("is not there");
    if (text->size() < magic.size() + checksum_bytes || !text->starts_with(magic))
        return wrong("is no checkpoint of this version");
    const std::size_t size = text->size() - checksum_bytes;
    if (load_le<std::uint64_t>(text->data() + size) !=
        fnv1a(std::string_view(*text).substr(0, size)))
        return wrong("is damaged");
    std::vector<std::byte> body(size - magic.size());  // Aligned.
    std::memcpy(body.data(), text->data() + magic.size(), body.size());
    archive_reader reader(body);
    process_record found;
    reader(found);
    if (!reader.ok() || reader.remaining() != 0) return wrong("is damaged");
    if (found.number != number || found.process != process) return wrong("is of another process");
    if (found.graph != graph) return wrong("is of another graph");
    return found;
}

result<void> write_complete_record(const path& folder, const complete_record& what) {
    const nlohmann::json text{{"checkpoint", what.number}, {"processes", what.processes}};
    return write_whole(folder / record_name, as_bytes_of(text.dump() + "\n"));
}

result<std::optional<complete_record>> read_complete_record(const path& folder) {
    const std::string file = printable((folder / record_name).string());
    const auto wrong = [&](std::string_view why) {
        return failure{{errc::mismatch},
                       fmt::format("\"{}\" is no record of a checkpoint ({}), expected what "
                                   "`amalgam run` has written; remove it to begin anew",
                                   file, printable(why))};
    };
    const auto read = read_whole(folder / record_name);
    if (!read)
        return cannot(read.why().what.native,
                      fmt::format("\"{}\" {}, expected the record that `amalgam run` has written; "
                                  "remove it to begin anew",
                                  file, read.sentence()));
    if (!read.value()) return std::optional<complete_record>();
    try {
        const auto in = nlohmann::json::parse(*read.value());
        const auto& number = in.at("checkpoint");
        if (!number.is_number_unsigned() || number == 0)
            return wrong("its number is no whole number from 1");
        return std::optional(complete_record{number.get<std::uint64_t>(),
                                             in.at("processes").get<std::vector<std::string>>()});
    } catch (const nlohmann::json::exception& why) {
        return wrong(why.what());
    }
}

void remove_checkpoints_but(const path& folder, std::uint64_t number,
                            const std::vector<std::string>& processes) noexcept {
    std::error_code ignored;  // What cannot be removed stays.
    try {
        std::vector<path> others;
        for (const auto& each : std::filesystem::directory_iterator(folder, ignored)) {
            const std::string name = each.path().filename();
            const bool is_one =
                name.starts_with(folder_prefix) &&
                name.find_first_not_of("0123456789", folder_prefix.size()) == std::string::npos &&
                name.size() > folder_prefix.size() &&
                each.symlink_status(ignored).type() == std::filesystem::file_type::directory;
            if (is_one && each.path() != folder_of(folder, number)) others.push_back(each.path());
        }
        for (const path& each : others)
            remove_files(each, processes);
    } catch (const std::exception&) {
    }
}

void remove_checkpoints(const path& folder, const std::vector<std::string>& processes) noexcept {
    // The record first: it must not name what is gone.
    std::error_code ignored;
    std::filesystem::remove(folder / record_name, ignored);
    remove_checkpoints_but(folder, 0, processes);
}

}  // namespace amalgam::detail
