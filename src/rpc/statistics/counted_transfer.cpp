#include "rpc/statistics/counted_transfer.hpp"

#include <new>

#include "rpc/context/engine_context.hpp"
#include "rpc/statistics/statistics_table.hpp"

namespace amalgam::detail {

counted_transfer::counted_transfer(engine_context& context)
    : context_(context), began_(context.now()) {
    const call_parent under = call_parent::here();
    parent_ = under.procedure;
    parent_provider_ = under.provider;
}

std::unique_ptr<counted_transfer> counted_transfer::begin(engine_context& context) noexcept {
    if (context.statistics() == nullptr) return nullptr;
    try {
        return std::unique_ptr<counted_transfer>(new counted_transfer(context));
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

void counted_transfer::end(bool is_put, std::uint64_t bytes, const peer& with,
                           status how) const noexcept {
    const row_key key{is_put ? "push" : "pull", 0, with, {parent_, parent_provider_}};
    context_.statistics()->transferred(key, how, bytes, context_.now() - began_);
}

}  // namespace amalgam::detail
