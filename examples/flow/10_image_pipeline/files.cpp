#include "files.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace image_pipeline {
namespace {

namespace fs = std::filesystem;

// No file of a small enough image is larger, in either format.
constexpr std::uint64_t most_file_bytes = 4 * most_pixels;

std::vector<std::string> images_in(const fs::path& folder) {
    std::vector<std::string> files;
    for (const fs::directory_entry& each : fs::directory_iterator(folder)) {
        const fs::path ending = each.path().extension();
        if (each.is_regular_file() && (ending == ".ppm" || ending == ".png"))
            files.push_back(each.path().string());
    }
    std::sort(files.begin(), files.end());
    return files;
}

std::string bytes_of(const std::string& file) {
    if (!fs::is_regular_file(file)) throw std::runtime_error("it is not a regular file");
    const std::uint64_t bytes = fs::file_size(file);
    if (bytes > most_file_bytes)
        throw std::runtime_error("it has " + std::to_string(bytes) + " bytes, expected at most " +
                                 std::to_string(most_file_bytes));
    std::string all(bytes, '\0');
    std::ifstream in(file, std::ios::binary);
    if (!in.read(all.data(), static_cast<std::streamsize>(bytes)))
        throw std::runtime_error(std::string("it cannot be read (") + std::strerror(errno) + ")");
    return all;
}

}  // namespace

std::vector<std::string> files_of(const options& asked) {
    std::vector<std::string> files;
    for (const std::string& input : asked.inputs) {
        std::error_code why;
        const fs::file_status found = fs::status(input, why);
        if (!fs::exists(found))
            throw std::runtime_error("the file \"" + input + "\" cannot be read (" + why.message() +
                                     "), expected an image or a folder of them");
        if (!fs::is_directory(found)) {
            files.push_back(input);
            continue;
        }
        const std::vector<std::string> inside = images_in(input);
        if (inside.empty())
            throw std::runtime_error("the folder \"" + input +
                                     "\" has no images, expected files that end in .ppm or .png");
        files.insert(files.end(), inside.begin(), inside.end());
    }
    std::map<std::string, std::string> names;
    for (const std::string& file : files) {
        const std::string name = fs::path(file).filename().string();
        const auto [other, is_new] = names.emplace(name, file);
        if (!is_new)
            throw std::runtime_error("the results of \"" + other->second + "\" and \"" + file +
                                     "\" would be one file, expected other names");
        std::error_code none;
        if (fs::equivalent(fs::path(asked.into) / name, file, none))
            throw std::runtime_error("the result of \"" + file +
                                     "\" would replace it, expected another folder; example: "
                                     "--into results");
    }
    return files;
}

picture read_picture(const std::string& file) {
    picture got;
    got.name = fs::path(file).filename().string();
    try {
        const std::string bytes = bytes_of(file);
        got.as = format_of(bytes);
        got.content = decoded(bytes, got.as);
    } catch (const std::exception& why) {
        got.wrong = "the file \"" + file + "\" is left out: " + why.what();
    }
    return got;
}

result_folder::result_folder(std::string folder) : folder_(std::move(folder)) {
    std::error_code why;
    fs::create_directories(folder_, why);
    if (!fs::is_directory(folder_))
        throw std::runtime_error("the folder \"" + folder_ + "\" cannot be created (" +
                                 why.message() + ")");
}

void result_folder::save(const picture& done) {
    if (!done.wrong.empty()) {
        std::fprintf(stderr, "image_pipeline: %s\n", done.wrong.c_str());
        ++left_out_;
        return;
    }
    const std::string file = (fs::path(folder_) / done.name).string();
    std::ofstream out(file, std::ios::binary);
    out << encoded(done.content, done.as);
    if (!out.flush())
        throw std::runtime_error("the file \"" + file + "\" cannot be written (" +
                                 std::strerror(errno) + ")");
    ++saved_;
}

void result_folder::finish() const {
    if (left_out_ > 0)
        throw std::runtime_error(std::to_string(left_out_) + " of " +
                                 std::to_string(left_out_ + saved_) + " images were left out");
}

}  // namespace image_pipeline
