#include "rpc/statistics/call_parent.hpp"

#include <charconv>

#include <fmt/format.h>

#include "rpc/limits.hpp"
#include "rpc/wire/wire.hpp"

namespace amalgam::detail {

namespace {
/// Of the metadata: provider and name, "3 shelf.put".
constexpr std::string_view parent_key = "amalgam.parent";
}  // namespace

call_parent call_parent::here() noexcept {
    const call_context* const serving = call_context::try_current();
    if (serving == nullptr) return {};
    return {serving->procedure(), serving->provider()};
}

void add_parent(std::vector<std::byte>& extras, const call_context& serving) {
    try {
        add_metadata(extras, parent_key,
                     fmt::format("{} {}", serving.provider(), serving.procedure()));
    } catch (const error& why) {
        if (why.code() != errc::too_large) throw;
    }
}

call_parent parent_in(const_bytes extras) noexcept {
    const auto text = find_metadata(extras, parent_key);
    if (!text) return {};
    call_parent found;
    const char* const end = text->data() + text->size();
    const auto [at, wrong] = std::from_chars(text->data(), end, found.provider);
    if (wrong != std::errc() || at == end || *at != ' ') return {};
    found.procedure = text->substr(static_cast<std::size_t>(at + 1 - text->data()));
    if (found.procedure.empty() || found.procedure.size() > limits::max_name_bytes) return {};
    return found;
}

}  // namespace amalgam::detail
