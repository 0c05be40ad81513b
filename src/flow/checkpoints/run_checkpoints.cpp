#include "flow/checkpoints/run_checkpoints.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>

#include <amalgam/core/detail/absolute_path.hpp>
#include <amalgam/core/detail/printable.hpp>
#include <amalgam/core/status.hpp>

namespace amalgam::detail {

run_checkpoints::run_checkpoints(const launch_options& options) : every_(options.checkpoint_every) {
    if (options.checkpoints.empty()) {
        if (options.checkpoint_every.count() != 0 || options.restarts != 0 || options.resume ||
            options.restart_from_start)
            throw error(errc::invalid,
                        "--checkpoint-every, --restarts, --from-start or --resume is given without "
                        "--checkpoints, expected the folder where they are; example: --checkpoints "
                        "saved --checkpoint-every 60 --restarts 3");
        return;
    }
    for (const group_config& group : options.config.groups) {
        if (group.name.find('/') != std::string::npos || group.name == "." || group.name == "..")
            throw error(errc::unsupported,
                        fmt::format("there is a group \"{}\", and --checkpoints is given, expected "
                                    "names that a file can have; example: readers",
                                    printable(group.name)));
        for (std::size_t i = 0; i < group.replicas(); ++i) {
            processes_.push_back(process_label(group, i));
            if (group.host(i).empty()) continue;
            throw error(errc::unsupported,
                        fmt::format("groups.{}.host is \"{}\", and --checkpoints is given, "
                                    "expected groups on this host only",
                                    group.name, group.host(i)));
        }
    }
    // A group may run in another folder.
    const auto whole = absolute_path(options.checkpoints);
    if (!whole) throw error(whole.code(), fmt::format("--checkpoints: {}", whole.sentence()));
    const std::filesystem::path folder = *whole;
    std::error_code why;
    std::filesystem::create_directories(folder, why);
    lock_.reset(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!lock_ || ::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
        if (!why) why.assign(errno, std::generic_category());
        throw error(errc::denied,
                    fmt::format("--checkpoints names \"{}\", which cannot be used ({}), expected a "
                                "folder that this user may write",
                                options.checkpoints, why.message()));
    }
    if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0)
        throw error(errc::in_use,
                    fmt::format("another run keeps its checkpoints in \"{}\", expected a folder "
                                "for each run",
                                options.checkpoints));
    folder_ = folder.string();
    const auto found = read_complete_record(folder).value();
    if (found && !options.resume)
        throw error(errc::invalid,
                    fmt::format("\"{0}\" has checkpoint {1} of an earlier run, expected --resume "
                                "to go on from it, or another folder; \"rm {0}/complete\" gives it "
                                "up",
                                options.checkpoints, found->number));
    if (!found && options.resume)
        throw error(errc::not_found,
                    fmt::format("--resume is given, but \"{}\" has no complete checkpoint, "
                                "expected the folder of an earlier run; without it the run begins "
                                "from the start",
                                options.checkpoints));
    if (found && found->processes != processes_)
        throw error(errc::mismatch,
                    fmt::format("the checkpoint in \"{}\" is of the processes {}, but the config "
                                "has {}, expected the same groups and replicas",
                                options.checkpoints,
                                printable(fmt::format("{}", fmt::join(found->processes, ", "))),
                                fmt::join(processes_, ", ")));
    if (found) latest_ = complete_ = found->number;
    remove_checkpoints_but(folder_, complete_, processes_);
    began_ = clock::now();
}

run_checkpoints::clock::time_point run_checkpoints::due() const noexcept {
    if (every_.count() == 0 || is_under_way()) return clock::time_point::max();
    return began_ + every_;
}

std::uint64_t run_checkpoints::begin(clock::time_point now) {
    left_.resize(processes_.size());
    std::iota(left_.begin(), left_.end(), std::size_t{0});
    failed_.clear();
    began_ = now;
    return ++latest_;
}

bool run_checkpoints::owes(std::size_t which) const noexcept {
    return std::find(left_.begin(), left_.end(), which) != left_.end();
}

run_checkpoints::news run_checkpoints::take(std::size_t which, std::uint64_t number,
                                            const std::string& why) {
    if (number != latest_ || !owes(which)) return {};
    left_.erase(std::find(left_.begin(), left_.end(), which));
    if (!why.empty() && failed_.empty())
        failed_ = fmt::format("group {}: {}", processes_[which], why);
    return left_.empty() ? finish() : news();
}

run_checkpoints::news run_checkpoints::finish() {
    if (failed_.empty()) {
        const auto written = write_complete_record(folder_, {latest_, processes_});
        // Which of the two the record names is then unknown: both stay.
        if (!written) return could_not_be_taken(written.sentence());
        complete_ = latest_;
    }
    remove_checkpoints_but(folder_, complete_, processes_);
    if (!failed_.empty()) return could_not_be_taken(failed_);
    return {fmt::format("checkpoint {} is complete", latest_), true};
}

run_checkpoints::news run_checkpoints::could_not_be_taken(const std::string& why) const {
    return {fmt::format("checkpoint {} could not be taken ({})", latest_, why)};
}

void run_checkpoints::abandon() noexcept {
    left_.clear();
    began_ = clock::now();
}

void run_checkpoints::remove_all() noexcept {
    if (are_on()) remove_checkpoints(folder_, processes_);
}

}  // namespace amalgam::detail
