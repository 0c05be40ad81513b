#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {

/// What becomes of a device, FIFO or folder in the place of a file.
enum class special_file : std::uint8_t {
    replaced,  ///< But a folder, which is a failure.
    written,   ///< What is written goes into it, and may do so in part.
    refused
};

/// How a file is written.
struct file_writing {
    unsigned mode = 0666;         ///< Without what the umask takes from it.
    bool has_exact_mode = false;  ///< Also what the umask takes; a failure where it cannot be set.
    bool keeps_mode = false;      ///< That of the file that it replaces, if there is one.
    bool replaces = true;         ///< False: a failure with EEXIST if there is one.
    /// The file that a link leads to is replaced, also one that is not there yet; false: the link
    /// is. A link of another user in a folder that all may write to is a failure.
    bool follows_links = false;
    special_file special = special_file::replaced;
    /// Only one at a time writes to this file, by a lock of the folder: what a killed one has left
    /// is removed.
    bool is_alone = false;
};

/// Why a file was not written.
struct [[nodiscard]] write_fault {
    int native = 0;      ///< errno; 0 with a text: it has none.
    std::string text{};  ///< As "No space left on device".

    /// Whether there is one.
    explicit operator bool() const noexcept { return !text.empty(); }
    static write_fault of(int native);
};

/// A file on its way to its place: it appears whole or not at all, also after a crash. Where the
/// file system can do that it has no name until then, and the kernel frees it if this process is
/// killed. Else, and for the moment in which it replaces another, it has one beside its place:
/// NAME.new if it is alone, else one with a random number.
///
/// Owner:   removes what has no place yet.
/// Threads: one at a time.
/// Failure: each step returns why; none may follow.
class whole_file {
public:
    explicit whole_file(std::string path, const file_writing& how = {})
        : path_(std::move(path)), how_(how) {}
    whole_file(const whole_file&) = delete;
    whole_file& operator=(const whole_file&) = delete;
    ~whole_file() { remove_unplaced(); }

    /// Call it once: all bytes, which are on the disk at its end.
    write_fault write(const_bytes content);
    /// Does what place() needs room in the folder for; place() does it, too.
    write_fault prepare();
    write_fault place();

    bool replaces() const noexcept { return how_.replaces; }
    /// Its place, behind the links that are followed; once written.
    const std::filesystem::path& where() const noexcept { return place_; }

private:
    write_fault find_place();
    write_fault open();
    write_fault put(const_bytes content);
    void remove_unplaced() noexcept;
    write_fault fail(int why);

    const std::string path_;
    const file_writing how_;
    std::filesystem::path place_;
    std::string beside_;
    std::optional<unsigned> kept_mode_;
    unique_fd file_;
    bool has_name_ = false;  // beside_
    bool is_special_ = false;
};

/// The names in the folder of that file are on the disk, too, if it can be.
void sync_folder_of(const std::filesystem::path& file) noexcept;

/// All steps at once.
write_fault write_whole_file(const std::string& path, const_bytes content,
                             const file_writing& how = {});

}  // namespace amalgam::detail
