#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "image.hpp"
#include "options.hpp"

namespace image_pipeline {

/// An image on its way through the pipeline, or why there is none.
struct picture {
    std::string name;  ///< Of its file, without the folder.
    format as = format::ppm;
    image content;
    std::string wrong;  ///< One sentence when it could not be read, or empty.

    template <typename Archive>
    void serialize(Archive& archive) {
        archive(name, as, content, wrong);
    }
};

/// The files that are asked for; of folders the .ppm and .png in them, by name.
/// Failure: throws std::runtime_error when one is not there, when two of them, or one of them and
///          its result, would be the same file in the folder of results.
std::vector<std::string> files_of(const options& asked);

/// Reads an image; one that is malformed comes back as what is wrong with it.
picture read_picture(const std::string& file);

/// Where the results go. Makes the folder.
class result_folder {
public:
    explicit result_folder(std::string folder);

    /// Writes the picture under its name; prints what was wrong with one that could not be read.
    /// Failure: throws std::runtime_error with the name of a file that cannot be written.
    void save(const picture& done);
    /// Failure: throws std::runtime_error when pictures were left out.
    void finish() const;

private:
    std::string folder_;
    std::size_t saved_ = 0;
    std::size_t left_out_ = 0;
};

}  // namespace image_pipeline
