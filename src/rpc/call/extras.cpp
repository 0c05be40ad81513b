#include "rpc/call/extras.hpp"

#include <fmt/format.h>

#include <amalgam/rpc/interceptor.hpp>

#include "rpc/limits.hpp"
#include "rpc/statistics/call_parent.hpp"
#include "rpc/wire/wire.hpp"

namespace amalgam {

void outgoing_call::attach(std::string_view key, std::string_view value) {
    if (key.empty() || key.size() > detail::limits::max_name_bytes) {
        throw error(
            errc::invalid,
            fmt::format("the metadata key has {} bytes, expected 1 to {}; example: \"user\"",
                        key.size(), detail::limits::max_name_bytes));
    }
    detail::add_metadata(extras_, key, value);
}

namespace detail {

namespace {

/// A constructible outgoing_call.
struct dressed_call final : outgoing_call {
    dressed_call(const call_target& target, bool one_way, clock::time_point deadline) {
        procedure_ = target.what->name;
        to_ = target.to;
        provider_ = target.provider;
        one_way_ = one_way;
        deadline_ = deadline;
    }
    std::vector<std::byte> take() {
        if (trace_) add_trace(extras_, *trace_);
        return std::move(extras_);
    }
};

}  // namespace

void add_loans(std::vector<std::byte>& extras, const lent_list& what) {
    std::vector<std::byte> ids(8 * what.size());
    for (std::size_t i = 0; i < what.size(); ++i)
        store_le(ids.data() + 8 * i, what[i].id);
    add_extra(extras, extra::loans, ids);
}

void tell_parent(std::vector<std::byte>& extras, const call_settings& settings,
                 const remote_procedure& what, const call_context* serving) {
    if (settings.counted && serving != nullptr && !what.library) add_parent(extras, *serving);
}

std::vector<std::byte> dress_call(const call_settings& settings, const call_target& target,
                                  bool one_way, clock::time_point deadline,
                                  const call_context* serving) {
    dressed_call call(target, one_way, deadline);
    if (target.trace) {
        call.set_trace(*target.trace);
    } else if (serving != nullptr && serving->trace() != nullptr) {
        call.set_trace(serving->trace()->child());
    } else if (settings.traced) {
        call.set_trace(new_trace());
    }
    const auto& all = settings.interceptors(target.what->library);
    std::size_t asked = 0;
    try {
        for (; asked < all.size(); ++asked)
            all[asked]->calling(call);
        return call.take();
    } catch (...) {
        const failure why = thrown_here("calling() of an interceptor");
        if (!one_way) {
            tell_called(settings, *target.what, target.to, why.what, {}, all.size() - asked);
        }
        throw error(why.what, why.sentence);
    }
}

std::optional<call_span> span_of(const call_settings& settings, const_bytes extras,
                                 const call_context* serving, std::size_t bytes) noexcept {
    if (!settings.traced) return {};
    const const_bytes trace = find_extra(extras, extra::trace);
    if (trace.empty()) return {};
    const trace_context read = read_trace(trace);
    return read.sampled || slow_call_limit() != 0
               ? std::optional<call_span>(std::in_place, read, serving, bytes)
               : std::nullopt;
}

void tell_called(const call_settings& settings, const remote_procedure& what, const peer& to,
                 status how, clock::duration took, std::size_t skipped) noexcept {
    const auto& all = settings.interceptors(what.library);
    for (std::size_t i = all.size() - skipped; i-- > 0;) {
        try {
            all[i]->called(what.name, to, how, took);
        } catch (...) {
            log_thrown("called() of an interceptor", what.name);
        }
    }
}

}  // namespace detail

}  // namespace amalgam
