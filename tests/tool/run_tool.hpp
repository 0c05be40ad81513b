#pragma once

#include <cstdio>
#include <string>

#include <sys/wait.h>

#include "contains.hpp"
#include "shell_word.hpp"

namespace amalgam::tool_testing {

struct outcome {
    int code;
    std::string output;  ///< Standard output and error together.
};

/// Runs it to the end, in a shell.
inline outcome run_tool(const std::string& program, const std::string& arguments) {
    const std::string command = program + " " + arguments + " 2>&1 </dev/null";
    std::FILE* pipe = ::popen(command.c_str(), "r");
    if (pipe == nullptr) return {-1, "could not start " + command};
    outcome result{0, {}};
    char part[4096];
    for (std::size_t n; (n = std::fread(part, 1, sizeof part, pipe)) > 0;)
        result.output.append(part, n);
    const int ended = ::pclose(pipe);
    result.code = WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
    return result;
}

inline outcome amalgam_tool(const std::string& arguments) {
    return run_tool(shell_word(AMALGAM_TOOL), arguments);
}

}  // namespace amalgam::tool_testing
