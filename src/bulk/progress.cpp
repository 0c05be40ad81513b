#include "bulk/progress.hpp"

#include <exception>

#include <fmt/format.h>

#include <amalgam/core/detail/in_words.hpp>

namespace amalgam::detail {

failure try_tell(const std::function<void(std::uint64_t)>& whom, std::uint64_t bytes) noexcept {
    if (!whom) return {};
    try {
        whom(bytes);
        return {};
    } catch (const std::exception& why) {
        return in_words({errc::handler_failed},
                        [&] { return fmt::format("on_progress threw: {}", text_of(why)); });
    } catch (...) {
        return in_words({errc::handler_failed},
                        "on_progress threw an exception not derived from std::exception");
    }
}

void tell(const std::function<void(std::uint64_t)>& whom, std::uint64_t bytes) {
    const failure why = try_tell(whom, bytes);
    if (!why.what.ok()) throw error(why.what, why.sentence);
}

}  // namespace amalgam::detail
