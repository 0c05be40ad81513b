#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/core/detail/read_file.hpp>
#include <amalgam/core/detail/text.hpp>
#include <amalgam/inject/image_revocations.hpp>

#include "inject/image/text.hpp"
#include "inject/limits.hpp"

namespace amalgam {

bool image_revocations::revokes(const code_image& image) const noexcept {
    const auto signer = image.signer();
    return std::find(images.begin(), images.end(), image.hash()) != images.end() ||
           (signer && std::find(keys.begin(), keys.end(), *signer) != keys.end());
}

result<image_revocations> image_revocations::parse(std::string_view text) {
    image_revocations all;
    for (std::string_view line; detail::take_line(text, line);) {
        if (line.empty()) continue;
        const std::size_t space = std::min(line.find(' '), line.size());
        const std::string_view kind = line.substr(0, space);
        image_hash digits{};
        if ((kind != "key" && kind != "image") ||
            !detail::parse_digits(detail::trimmed(line.substr(space)), digits))
            return {errc::invalid,
                    fmt::format("\"{}\" revokes nothing, expected key or image, and 64 hexadecimal "
                                "digits; amalgam inject revoke writes such lines",
                                detail::printable_name(line.substr(0, 80)))};
        (kind == "key" ? all.keys : all.images).push_back(digits);
    }
    return all;
}

result<image_revocations> image_revocations::load(const std::string& path) {
    if (auto fault = detail::fault_of_policy_file(path))
        return {fault->what.code, "the revocation list " + fault->sentence};
    const auto read = detail::read_file(path, detail::limits::max_revocation_list_bytes);
    if (!read)
        return {read.code().code, fmt::format("the revocation list {} {}", path, read.sentence())};
    auto all = parse({reinterpret_cast<const char*>(read->data()), read->size()});
    if (!all) return {all.code().code, fmt::format("{}: {}", path, all.sentence())};
    return all;
}

void image_revocations::append_to(const std::string& path) const {
    std::string text;
    for (const signer_key& each : keys)
        text += fmt::format("key {}\n", to_text(each));
    for (const image_hash& each : images)
        text += fmt::format("image {}\n", to_text(each));
    if (!detail::append_lines(path, text, detail::unended_line::is_ended))
        throw error(errc::denied, fmt::format("the revocation list {} cannot be written: {}", path,
                                              std::strerror(errno)));
}

}  // namespace amalgam
