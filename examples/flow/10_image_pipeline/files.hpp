#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "image.hpp"
#include "options.hpp"

namespace image_pipeline {

/// An image passing through the pipeline, or why there is none.
struct picture {
    std::string name;  ///< Of its file, without the folder.
    format as = format::ppm;
    image content;
    std::string wrong;  ///< Why it could not be read, in one sentence, or empty.

    template <typename Archive>
    void serialize(Archive& archive) {
        archive(name, as, content, wrong);
    }
};

/// The requested files; for folders the .ppm and .png files in them, by name.
/// Failure: throws std::runtime_error if one does not exist, or if two of them, or an input and a
///          result, would be the same file in the result folder.
std::vector<std::string> files_of(const options& asked);

/// Reads an image; for a malformed one, returns what is wrong.
picture read_picture(const std::string& file);

/// Folder of the results; created if missing.
class result_folder {
public:
    explicit result_folder(std::string folder);

    /// Writes the picture under its name, or prints why it could not be read.
    /// Failure: throws std::runtime_error with the name of a file that cannot be written.
    void save(const picture& done);
    /// Failure: throws std::runtime_error if pictures were left out.
    void finish() const;

private:
    std::string folder_;
    std::size_t saved_ = 0;
    std::size_t left_out_ = 0;
};

}  // namespace image_pipeline
