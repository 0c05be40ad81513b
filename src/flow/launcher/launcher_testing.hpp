#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conformance/child_process.hpp"
#include "contains.hpp"
#include "flow/run/reports_testing.hpp"
#include "temp_folder.hpp"

namespace amalgam {

using conformance::child_process;

/// Runs test_program.cpp under the tool, in a folder of the test.
class launcher : public testing::Test {
protected:
    void SetUp() override {
        write_config(R"({"groups": {"G1": {"endpoint": "shm://"}, "G2": {"endpoint": "shm://"},
                                    "G3": {"endpoint": "shm://"}}})");
    }

    void write_config(const std::string& text) { std::ofstream(folder_ + "/c.json") << text; }

    /// amalgam run -c config OPTIONS -- program ARGUMENTS
    child_process start(const std::vector<std::string>& arguments,
                        const std::vector<std::string>& options = {}) {
        std::vector<std::string> argv{AMALGAM_TOOL, "run", "-c", folder_ + "/c.json"};
        argv.insert(argv.end(), options.begin(), options.end());
        argv.insert(argv.end(), {"--", FLOW_TEST_PROGRAM});
        argv.insert(argv.end(), arguments.begin(), arguments.end());
        return child_process::run(argv);
    }

    struct outcome {
        int code;
        std::string output;
    };
    outcome run(const std::vector<std::string>& arguments,
                const std::vector<std::string>& options = {}) {
        child_process launched = start(arguments, options);
        std::string output = launched.output();
        return {launched.join(), output};
    }

    const temp_folder own_;
    const std::string folder_ = own_.path();
};

/// Runs that report their processes.
class launcher_with_reports : public launcher {
protected:
    void SetUp() override {
        launcher::SetUp();
        reports_.emplace(folder_ + "/fifo");
    }
    std::multimap<std::string, pid_t> wait_for_processes(long count) {
        return reports_->wait_for(count);
    }
    void wait_until_nothing_is_left() { reports_->wait_until_nothing_is_left(); }
    child_process start(const std::string& mode, const std::vector<std::string>& options = {}) {
        return launcher::start({mode, reports_->path()}, options);
    }

private:
    std::optional<detail::test_reports> reports_;
};

/// Stops a process that is not a child of this one, and waits until all its threads have stopped: a
/// running one goes on for a moment after the signal was sent.
inline void stop_and_wait(pid_t process) {
    ::kill(process, SIGSTOP);
    const std::string threads = "/proc/" + std::to_string(process) + "/task";
    const auto has_stopped = [](const std::filesystem::path& thread) {
        std::ifstream file(thread / "stat");
        std::string text;
        std::getline(file, text);
        const std::size_t name_ends = text.rfind(") ");
        return name_ends == std::string::npos || text[name_ends + 2] == 'T';
    };
    const auto all_have_stopped = [&] {
        for (const auto& each : std::filesystem::directory_iterator(threads))
            if (!has_stopped(each.path())) return false;
        return true;
    };
    while (!all_have_stopped())
        std::this_thread::yield();
}

inline std::size_t lines_with(const std::string& text, const std::string& part) {
    std::istringstream lines(text);
    std::size_t found = 0;
    for (std::string line; std::getline(lines, line);)
        if (contains(line, part)) ++found;
    return found;
}

}  // namespace amalgam
