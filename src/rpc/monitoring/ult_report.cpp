#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/ult_report.hpp>
#include <amalgam/tasks/inspect.hpp>

#include "rpc/core/core.hpp"
#include "rpc/limits.hpp"
#include "rpc/monitoring/wait_report.hpp"

namespace amalgam {

namespace detail {

namespace {

constexpr std::string_view ults_name = "amalgam.ults";

std::string cut(std::string text) {
    if (text.size() > limits::max_frame_bytes_told) text.resize(limits::max_frame_bytes_told);
    return text;
}

told_ult told(ult_info& from) {
    told_ult one;
    one.id = number_of(from.id);
    one.name = cut(std::move(from.name));
    one.state = from.state;
    one.waits_for = std::move(from.waits_for);
    one.waited = from.waited;
    one.unit = number_of(from.waits_for_ult);
    one.stream = cut(std::move(from.stream));
    for (std::size_t i = 0; i < std::min(from.trace.size(), limits::max_frames_told); ++i)
        one.trace.push_back(cut(std::move(from.trace[i].text)));
    return one;
}

std::size_t bytes_of(const told_ult& one) noexcept {
    std::size_t bytes = one.name.size() + one.waits_for.size() + one.stream.size();
    for (const std::string& each : one.trace)
        bytes += each.size();
    return bytes;
}

}  // namespace

void define_ults(engine& here, const std::optional<allow_list>& to) {
    // Not where handlers run: they may hang.
    here.define(library_name{ults_name}, [] { return read_ults(); },
                {.in = &here.core().stream().main_pool(), .allow = to});
}

}  // namespace detail

ult_report read_ults() {
    using namespace detail;
    std::vector<ult_info> all = list_ults(true);
    std::stable_sort(all.begin(), all.end(), [](const ult_info& a, const ult_info& b) {
        const auto waits = [](const ult_info& each) { return each.state == ult_state::parked; };
        return waits(a) != waits(b) ? waits(a) : a.waited > b.waited;
    });
    ult_report report;
    report.process = ::getpid();
    report.host = host_name();
    std::size_t bytes = 0;
    for (ult_info& each : all) {
        told_ult one = told(each);
        bytes += bytes_of(one);
        if (report.ults.size() == limits::max_units_told || bytes > limits::max_stack_bytes_told) {
            report.left_out = all.size() - report.ults.size();
            break;
        }
        report.ults.push_back(std::move(one));
    }
    return report;
}

ult_report read_ults(engine& here, const peer& there, std::chrono::milliseconds timeout) {
    try {
        return here.procedure<ult_report()>(std::string(detail::ults_name))
            .on(there)
            .within(timeout)();
    } catch (const error& why) {
        if (why.code() != errc::not_found) throw;
        throw error(errc::not_found, fmt::format("{} does not tell its ULTs; to let it, call "
                                                 "am::offer_metrics(engine) there",
                                                 there.address()));
    }
}

}  // namespace amalgam
