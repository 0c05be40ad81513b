#pragma once

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>
#include <stdlib.h>

namespace amalgam {

/// A folder of the test's own, deleted with its contents.
class temp_folder {
public:
    temp_folder() : path_(testing::TempDir() + "amalgam-XXXXXX") {
        if (::mkdtemp(path_.data()) == nullptr)
            throw std::runtime_error("there can be no folder " + path_);
    }
    temp_folder(const temp_folder&) = delete;
    temp_folder& operator=(const temp_folder&) = delete;
    ~temp_folder() {
        std::error_code left;
        std::filesystem::remove_all(path_, left);
    }

    const std::string& path() const noexcept { return path_; }
    std::string with(const std::string& file) const { return path_ + "/" + file; }
    /// The path of `file`, which has `content` now.
    std::string with(const std::string& file, const std::string& content) const {
        std::ofstream(with(file)) << content;
        return with(file);
    }

private:
    std::string path_;
};

/// The current folder is this one while it lives.
class in_folder {
public:
    explicit in_folder(const std::string& path) { std::filesystem::current_path(path); }
    in_folder(const in_folder&) = delete;
    in_folder& operator=(const in_folder&) = delete;
    ~in_folder() { std::filesystem::current_path(before_); }

private:
    const std::filesystem::path before_ = std::filesystem::current_path();
};

}  // namespace amalgam
