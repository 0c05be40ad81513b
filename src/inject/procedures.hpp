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
#include <amalgam/rpc/type_name.hpp>

/// What sources and targets ask of each other.
namespace amalgam::detail {

/// How a run ended.
struct run_answer {
    errc code = errc::ok;
    bool wants_code = false;  ///< It was not run: the target has not got this image.
    std::string sentence{};
    std::vector<std::byte> result{};

    template <typename Archive>
    void serialize(Archive& a) {
        a(code, wants_code, sentence, result);
    }
};

namespace at_target {
/// The image's hash, a payload.
using run = run_answer(image_hash, const_bytes);
inline constexpr std::string_view run_name = "inject.run";
/// The image itself.
using run_code = run_answer(const_bytes, const_bytes);
inline constexpr std::string_view run_code_name = "inject.run_code";
/// The image's hash, the image itself or nothing, memory that its code may read or write, a payload.
using run_attached = run_answer(image_hash, const_bytes, std::vector<amalgam::bulk>, const_bytes);
inline constexpr std::string_view run_attached_name = "inject.run_attached";
/// An image that is to be run soon.
using bring = run_answer(const_bytes);
inline constexpr std::string_view bring_name = "inject.bring";
}  // namespace at_target

namespace at_source {
/// The bytes of the image with that hash; none: it is not here any more.
using fetch = std::vector<std::byte>(image_hash);
inline constexpr std::string_view fetch_name = "inject.fetch";
}  // namespace at_source

}  // namespace amalgam::detail
