#pragma once

#include <string>
#include <vector>

#include <ff/dff.hpp>

namespace ff::testing_groups {

/// This process becomes `group` of the run that `file` describes, and does its part by `program`.
/// Returns its exit code: 3 if it was refused, 1 if the program did not return 0.
template <typename Program>
int run_group(const std::string& group, const std::string& file, Program&& program) {
    std::vector<std::string> words{"program", "--DFF_Config=" + file, "--DFF_GName=" + group};
    std::vector<char*> pointers;
    for (std::string& word : words)
        pointers.push_back(word.data());
    pointers.push_back(nullptr);
    int argc = static_cast<int>(words.size());
    char** argv = pointers.data();
    if (DFF_Init(argc, argv) != 0) return 3;
    return program() == 0 ? 0 : 1;
}

}  // namespace ff::testing_groups
