#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/core/bytes.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/inject/code_image.hpp>
#include <amalgam/rpc/codec_std.hpp>
#include <amalgam/rpc/extension/rest_of_message.hpp>
#include <amalgam/rpc/type_name.hpp>

#include "inject/image/contents.hpp"

/// Procedures between sources and targets.
namespace amalgam::detail {

/// Names an image in messages: the first bytes of its hash or, if signed, of the hash of the whole.
/// A target refuses a second image with the same id.
using image_id = std::uint64_t;
inline image_id id_of(const code_image& image) noexcept {
    return image.contents().number;
}

/// How a run ended.
struct run_answer {
    errc code = errc::ok;
    bool wants_code = false;  ///< Not run: the target does not have this image.
    std::string sentence{};
    std::vector<std::byte> result{};

    template <typename Archive>
    void serialize(Archive& a) {
        a(code, wants_code, sentence, result);
    }
};

namespace at_target {
/// The image's id, a payload.
using run = run_answer(image_id, rest_of_message);
inline constexpr std::string_view run_name = "amalgam.inject.run";
/// The same without an answer.
using post = void(image_id, rest_of_message);
inline constexpr std::string_view post_name = "amalgam.inject.post";
/// The image itself, a payload.
using run_code = run_answer(const_bytes, rest_of_message);
inline constexpr std::string_view run_code_name = "amalgam.inject.run_code";
using post_code = void(const_bytes, rest_of_message);
inline constexpr std::string_view post_code_name = "amalgam.inject.post_code";
/// The image's id, the image itself or empty, memory that its code may access, a payload.
using run_attached = run_answer(image_id, const_bytes, std::vector<amalgam::bulk>, rest_of_message);
inline constexpr std::string_view run_attached_name = "amalgam.inject.run_attached";
/// An image to be run soon.
using bring = run_answer(const_bytes);
inline constexpr std::string_view bring_name = "amalgam.inject.bring";
}  // namespace at_target

namespace at_source {
/// The bytes of that image; empty if it is no longer here.
using fetch = std::vector<std::byte>(image_id);
inline constexpr std::string_view fetch_name = "amalgam.inject.fetch";
}  // namespace at_source

}  // namespace amalgam::detail
