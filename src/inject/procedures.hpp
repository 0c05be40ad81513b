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
/// Zeros, so that the payload behind them lies at a multiple of 8 in the message.
using gap = std::uint32_t;
using gap_bytes = const_bytes;
inline gap_bytes gap_after(const_bytes code) {
    static constexpr std::byte zeros[8]{};
    return const_bytes(zeros, (8 - (code.size() + 3 * sizeof(std::uint32_t)) % 8) % 8);
}

/// The image's hash, a payload.
using run = run_answer(image_hash, gap, const_bytes);
inline constexpr std::string_view run_name = "inject.run";
/// The same for those who want no answer.
using post = void(image_hash, gap, const_bytes);
inline constexpr std::string_view post_name = "inject.post";
/// The image itself, a payload.
using run_code = run_answer(const_bytes, gap_bytes, const_bytes);
inline constexpr std::string_view run_code_name = "inject.run_code";
using post_code = void(const_bytes, gap_bytes, const_bytes);
inline constexpr std::string_view post_code_name = "inject.post_code";
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
